// SPDX-License-Identifier: BSD-2-Clause
// Has both worlds do the same, and compares. See runner.hpp.
#include "fabtests/sockets/programs/compared/runner.hpp"

#include <unistd.h>

#include <vector>

namespace compared {

namespace {

constexpr int kFirstActors = 2;

bool makes_actor(const Step &step)
{
    return step.command.op == Op::kFork || step.command.op == Op::kThread;
}

Command with_port(const Step &step, const World &world)
{
    Command command = step.command;
    if (const auto port = world.ports().find(step.key); command.op == Op::kConnect && port != world.ports().end())
        command.port = port->second;
    return command;
}

// That a process has ended without a word its peers hear by a thread of the library.
void let_news_come()
{
    constexpr unsigned kMoment = 20'000; // microseconds
    ::usleep(kMoment);
}

} // namespace

std::string text_of(const Step &step)
{
    std::string text = "actor " + std::to_string(step.actor) + ": " + (step.kills ? "killed" : text_of(step.command));
    if (step.newcomer >= 0)
        text += " actor " + std::to_string(step.newcomer);
    if (step.key >= 0)
        text += " port " + std::to_string(step.key);
    return text;
}

Runner::Runner(const char *preload) : library_(preload)
{
    for (int actor = 0; actor < kFirstActors; ++actor) {
        kernel_.start(actor);
        library_.start(actor);
    }
}

void Runner::judge(int actor, bool ends, int key, Op op, const std::string &what, Outcome &outcome)
{
    Reply theirs;
    outcome.answer = kernel_.look(actor, outcome.reply, ends);
    const Answer answer = library_.look_for(actor, theirs, outcome.answer);
    if (key >= 0 && outcome.reply.port != 0) {
        kernel_.set_port(key, outcome.reply.port);
        library_.set_port(key, theirs.port);
    }
    if (answer == outcome.answer && (answer != Answer::kReplied || same(outcome.reply, theirs)))
        return;
    const auto text = [](Answer how, const Reply &reply) {
        return how == Answer::kReplied ? text_of(reply) : std::string{name_of(how)};
    };
    where_ = op;
    difference_ =
        what + ": the kernel " + text(outcome.answer, outcome.reply) + ", the library " + text(answer, theirs);
}

// A call that waited may be over.
void Runner::look_at_waiting()
{
    for (int actor = 0; actor < 64 && !differs(); ++actor) {
        if (!kernel_.is_busy(actor))
            continue;
        Outcome outcome;
        judge(actor, false, -1, Op::kCount, "what actor " + std::to_string(actor) + " waited for", outcome);
    }
}

// One step, as the descriptor is the comparer's in between.
void Runner::give(const Step &step)
{
    Command take;
    take.op = Op::kTake;
    take.other = step.command.other;
    for (World *const world : {&kernel_, &library_}) {
        const int descriptor = world->take_descriptor();
        world->tell(step.newcomer, take, -1, descriptor);
        if (descriptor >= 0)
            ::close(descriptor);
    }
    Outcome outcome;
    judge(step.newcomer, true, -1, Op::kTake, "a descriptor that is given", outcome);
}

Outcome Runner::run(const Step &step)
{
    Outcome outcome;
    if (!is_free(step.actor) || (step.command.op == Op::kGive && !is_free(step.newcomer)))
        return outcome;
    if (makes_actor(step) && kernel_.has(step.newcomer))
        return outcome;
    outcome.done = true;
    if (step.kills) {
        kernel_.kill(step.actor);
        library_.kill(step.actor);
        outcome.answer = Answer::kGone;
    } else {
        const int newcomer = makes_actor(step) ? step.newcomer : -1;
        kernel_.tell(step.actor, with_port(step, kernel_), newcomer);
        library_.tell(step.actor, with_port(step, library_), newcomer);
        judge(step.actor, step.ends, step.key, step.command.op, text_of(step), outcome);
    }
    if (outcome.answer == Answer::kGone)
        let_news_come();
    if (step.command.op == Op::kGive && !differs())
        give(step);
    if (!differs())
        look_at_waiting();
    return outcome;
}

} // namespace compared
