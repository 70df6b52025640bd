// SPDX-License-Identifier: BSD-2-Clause
// Follows what was done. See model.hpp.
#include "fabtests/sockets/programs/compared/model.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace compared {

File *Model::file_of(const Step &step, int slot)
{
    const auto actor = actors.find(step.actor);
    if (actor == actors.end() || slot < 0)
        return nullptr;
    const int file = processes[actor->second].files[static_cast<std::size_t>(slot)];
    return file < 0 ? nullptr : &files[static_cast<std::size_t>(file)];
}

int Model::free_slot(const Process &process) const
{
    const auto found = std::ranges::find(process.files, -1);
    return found == process.files.end() ? -1 : static_cast<int>(found - process.files.begin());
}

void Model::follow(const Step &step, const Outcome &outcome)
{
    if (!outcome.done)
        return;
    if (step.kills || step.command.op == Op::kExit) {
        end(actors[step.actor]);
        return;
    }
    const File *const file = file_of(step, step.command.slot);
    if (outcome.answer == Answer::kAsleep && file != nullptr)
        waiting[step.actor] = static_cast<int>(file - files.data());
    if (outcome.answer == Answer::kReplied) {
        follow_bytes(step, outcome.reply);
        follow_files(step, outcome.reply);
    }
    follow_process(step);
}

void Model::end(int process)
{
    if (const auto parent = processes.find(processes[process].parent); parent != processes.end())
        ++parent->second.zombies;
    processes.erase(process);
    std::erase_if(actors, [process](const auto &entry) { return entry.second == process; });
}

void Model::follow_bytes(const Step &step, const Reply &reply)
{
    File *const file = file_of(step, step.command.slot);
    if (file == nullptr || reply.result <= 0)
        return;
    const Op op = step.command.op;
    const bool moves_out = op == Op::kSend || (op == Op::kMove && step.command.form != 0);
    const bool moves_in =
        (op == Op::kReceive && (step.command.flags & MSG_PEEK) == 0) || (op == Op::kMove && !moves_out);
    const bool several = op == Op::kSend && step.command.form == 5;
    if (moves_out && file->peer >= 0)
        files[static_cast<std::size_t>(file->peer)].unread += several ? reply.value : reply.result;
    if (moves_in)
        file->unread = std::max<std::int64_t>(0, file->unread - reply.result);
}

void Model::follow_files(const Step &step, const Reply &reply)
{
    Process &process = processes[actors[step.actor]];
    const Command &command = step.command;
    const auto at = [&process](int slot) -> int & { return process.files[static_cast<std::size_t>(slot)]; };
    File *const file = file_of(step, command.slot);
    if (command.op == Op::kClose && command.slot >= 0)
        at(command.slot) = -1;
    if (command.op == Op::kConnect && file != nullptr && (reply.result == 0 || reply.error == EINPROGRESS)) {
        const auto there = std::ranges::find_if(
            files, [&](const File &one) { return one.key == step.key && one.kind != Kind::kFresh; });
        if (there != files.end() && there->kind == Kind::kListener && file->kind == Kind::kFresh) {
            file->kind = Kind::kStream;
            there->arriving.push_back(at(command.slot));
        } else if (there != files.end() && file->kind == Kind::kDatagrams) {
            file->peer = static_cast<int>(there - files.begin());
        }
    }
    if (reply.result < 0)
        return;
    switch (command.op) {
    case Op::kSocket:
        at(command.other) = new_file(command.form == SOCK_DGRAM ? Kind::kDatagrams : Kind::kFresh);
        break;
    case Op::kNewSet:
        at(command.other) = new_file(Kind::kSet);
        break;
    case Op::kBind:
        file->key = step.key;
        break;
    case Op::kListen:
        file->kind = Kind::kListener;
        file->key = step.key;
        break;
    case Op::kAccept: {
        const int fresh = new_file(Kind::kStream);
        at(command.other) = fresh;
        File &listener = *file_of(step, command.slot);
        if (!listener.arriving.empty()) {
            const int peer = listener.arriving.front();
            listener.arriving.pop_front();
            files[static_cast<std::size_t>(fresh)].peer = peer;
            files[static_cast<std::size_t>(peer)].peer = fresh;
        }
        break;
    }
    case Op::kDuplicate:
        at(command.other) = at(command.slot);
        break;
    case Op::kReplace:
        at(command.other) = at(command.slot);
        break;
    case Op::kGive:
        if (const auto taker = actors.find(step.newcomer); taker != actors.end())
            processes[taker->second].files[static_cast<std::size_t>(command.other)] = at(command.slot);
        break;
    default:
        break;
    }
}

void Model::follow_process(const Step &step)
{
    const int here = actors[step.actor];
    if (step.command.op == Op::kThread) {
        actors[step.newcomer] = here;
        ++processes[here].threads;
    }
    if (step.command.op == Op::kFork) {
        Process child = processes[here];
        child.threads = 1;
        child.parent = here;
        child.zombies = 0;
        processes[step.newcomer] = child;
        actors[step.newcomer] = step.newcomer;
    }
    if (step.command.op == Op::kReap)
        --processes[here].zombies;
}

} // namespace compared
