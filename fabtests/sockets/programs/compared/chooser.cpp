// SPDX-License-Identifier: BSD-2-Clause
// Which actor does what kind of thing next; connections, processes and descriptors. See chooser.hpp.
#include "fabtests/sockets/programs/compared/chooser.hpp"

#include <sys/socket.h>

#include <algorithm>

namespace compared {

namespace {

constexpr int kMostProcesses = 5;
constexpr int kMostActors = 8;

bool is_stream(const File &file)
{
    return file.kind == Kind::kStream;
}

bool is_socket(const File &file)
{
    return file.kind != Kind::kSet;
}

bool is_anything(const File &)
{
    return true;
}

} // namespace

Step Chooser::plain(int actor, Op op, int slot)
{
    Step step;
    step.actor = actor;
    step.command.op = op;
    step.command.slot = slot;
    step.command.seed = random_();
    return step;
}

int Chooser::actor_among(const Runner &runner, const Model &model, int other_than)
{
    std::vector<int> free;
    for (const auto &[actor, process] : model.actors)
        if (actor != other_than && runner.is_free(actor))
            free.push_back(actor);
    return free.empty() ? -1 : one_of(free);
}

int Chooser::slot_of(const Process &process, const Model &model, bool (*fits)(const File &))
{
    std::vector<int> slots;
    for (int slot = 0; slot < kSlots; ++slot)
        if (const int file = process.files[static_cast<std::size_t>(slot)];
            file >= 0 && fits(model.files[static_cast<std::size_t>(file)]))
            slots.push_back(slot);
    return slots.empty() ? -1 : one_of(slots);
}

// A listener in one process, a connection to it from another or from the same, and enough talk to be accelerated.
void Chooser::plan_pair(const Runner &runner, Model &model)
{
    const int acceptor = actor_among(runner, model, -1);
    if (acceptor < 0)
        return;
    const int connector = once_in(4) ? acceptor : actor_among(runner, model, acceptor);
    if (connector < 0)
        return;
    Process there = model.processes[model.actors[acceptor]];
    const auto take = [&model](Process &process) {
        const int slot = model.free_slot(process);
        if (slot >= 0)
            process.files[static_cast<std::size_t>(slot)] = 0;
        return slot;
    };
    const int listener = take(there);
    const int accepted = take(there);
    Process here = model.actors[connector] == model.actors[acceptor] ? there : model.processes[model.actors[connector]];
    const int connected = take(here);
    if (listener < 0 || accepted < 0 || connected < 0)
        return;
    const int key = model.next_key++;
    const auto plan = [this](Step step, int other = -1, int form = 0, int flags = 0, int value = 0) -> Step & {
        step.command.other = other;
        step.command.form = form;
        step.command.flags = flags;
        step.command.value = value;
        planned_.push_back(step);
        return planned_.back();
    };
    plan(plain(acceptor, Op::kSocket), listener, SOCK_STREAM);
    plan(plain(acceptor, Op::kListen, listener), -1, 0, 0, 16).key = key;
    plan(plain(connector, Op::kSocket), connected, SOCK_STREAM);
    plan(plain(connector, Op::kConnect, connected)).key = key;
    plan(plain(acceptor, Op::kAccept, listener), accepted, 0, once_in(3) ? SOCK_NONBLOCK : 0);
    if (!once_in(4))
        plan(plain(acceptor, Op::kClose, listener));
    plan_talk(connector, connected, acceptor, accepted);
}

void Chooser::plan_talk(int actor, int slot, int peer_actor, int peer_slot)
{
    for (int round = below(4); round > 0; --round) {
        Step there = plain(actor, Op::kSend, slot);
        there.command.length = 1 + below(100);
        planned_.push_back(there);
        Step got = plain(peer_actor, Op::kReceive, peer_slot);
        got.command.length = 200;
        got.command.flags = MSG_DONTWAIT;
        planned_.push_back(got);
        std::swap(actor, peer_actor);
        std::swap(slot, peer_slot);
    }
}

// Two UDP sockets of one process, or of two, that are connected to each other.
void Chooser::plan_datagrams(Model &model, int actor)
{
    const Process &process = model.processes[model.actors[actor]];
    std::vector<int> slots;
    for (int slot = 0; slot < kSlots && slots.size() < 2; ++slot)
        if (process.files[static_cast<std::size_t>(slot)] < 0)
            slots.push_back(slot);
    if (slots.size() < 2)
        return;
    const int keys[2] = {model.next_key, model.next_key + 1};
    model.next_key += 2;
    for (unsigned i = 0; i < 2; ++i) {
        Step made = plain(actor, Op::kSocket);
        made.command.other = slots[i];
        made.command.form = SOCK_DGRAM;
        planned_.push_back(made);
        Step bound = plain(actor, Op::kBind, slots[i]);
        bound.key = keys[i];
        planned_.push_back(bound);
    }
    for (unsigned i = 0; i < 2; ++i) {
        Step connected = plain(actor, Op::kConnect, slots[i]);
        connected.key = keys[1 - i];
        planned_.push_back(connected);
    }
}

Step Chooser::on_process(const Process &process, Model &model, int actor)
{
    const bool last = model.processes.size() <= 2;
    const bool more = static_cast<int>(model.processes.size()) < kMostProcesses && model.next_actor < 60;
    Step step = plain(actor, Op::kSpawn);
    step.ends = true;
    if (process.zombies > 0) {
        step.command.op = Op::kReap;
        return step;
    }
    switch (below(8)) {
    case 0:
    case 1:
        if (choice_.processes && more) {
            step.command.op = Op::kFork;
            step.newcomer = model.next_actor++;
        }
        break;
    case 2:
        if (choice_.threads && static_cast<int>(model.actors.size()) < kMostActors && model.next_actor < 60) {
            step.command.op = Op::kThread;
            step.newcomer = model.next_actor++;
        }
        break;
    case 3:
    case 4:
        if (choice_.processes && !last && model.actors[actor] >= 2)
            step.command.op = Op::kExit;
        break;
    case 5:
        if (choice_.processes && !last && model.actors[actor] >= 2)
            step.kills = true;
        break;
    case 6:
        if (choice_.processes && process.threads == 1)
            step.command.op = Op::kExec;
        break;
    default:
        break;
    }
    return step;
}

Step Chooser::on_descriptor(const Process &process, const Runner &runner, Model &model, int actor, int slot)
{
    Step step = plain(actor, Op::kClose, slot);
    const int free = model.free_slot(process);
    switch (below(choice_.processes ? 5 : 3)) {
    case 0:
        break;
    case 1:
        if (free >= 0) {
            step.command.op = Op::kDuplicate;
            step.command.other = free;
            step.command.form = once_in(3) ? 1 : 0;
        }
        break;
    case 2:
        step.command.other = slot_of(process, model, is_socket);
        if (step.command.other >= 0 && step.command.other != slot)
            step.command.op = Op::kReplace;
        break;
    default:
        const int taker = actor_among(runner, model, actor);
        const File *const file = model.file_of(step, slot);
        if (taker < 0 || file == nullptr || file->kind == Kind::kSet || // entries of a set go by number
            model.actors[taker] == model.actors[actor])
            break;
        const int there = model.free_slot(model.processes[model.actors[taker]]);
        if (there < 0)
            break;
        step.command.op = Op::kGive;
        step.command.other = there;
        step.newcomer = taker;
    }
    return step;
}

Step Chooser::next(const Runner &runner, Model &model)
{
    while (!planned_.empty()) {
        const Step step = planned_.front();
        planned_.pop_front();
        if (runner.is_free(step.actor))
            return step;
    }
    model.forget_waits(runner);
    const int actor = actor_among(runner, model, -1);
    if (actor < 0) {
        Step nothing;
        nothing.actor = -1;
        return nothing;
    }
    const Process &process = model.processes[model.actors[actor]];
    const int stream = slot_of(process, model, is_stream);
    const int dice = below(100);
    if (stream < 0 && dice < 50) {
        if (choice_.datagrams && once_in(4))
            plan_datagrams(model, actor);
        else
            plan_pair(runner, model);
    }
    if (dice == 99)
        plan_pair(runner, model);
    if (!planned_.empty())
        return next(runner, model);
    if (dice < 2)
        return on_process(process, model, actor);
    const int any = slot_of(process, model, is_anything);
    if (dice < 6 && any >= 0)
        return on_descriptor(process, runner, model, actor, any);
    if (dice < 22)
        return wait(process, model, actor);
    if (dice < 34 && choice_.sets)
        return on_set(process, model, actor);
    const int slot = slot_of(process, model, is_socket);
    if (slot < 0)
        return plain(actor, Op::kClose, -1);
    return on_stream(model, actor, slot);
}

} // namespace compared
