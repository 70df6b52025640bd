// SPDX-License-Identifier: BSD-2-Clause
// The loop of an actor. See actor.hpp.
#include "fabtests/sockets/programs/compared/actor.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace compared {

std::array<int, kSlots> g_slots;

namespace {

thread_local volatile sig_atomic_t g_signals;

void count_signal(int)
{
    g_signals = g_signals + 1;
}

Reply run(Actor &actor, const Command &command, int *give)
{
    switch (command.op) {
    case Op::kSend:
    case Op::kReceive:
    case Op::kMove:
        return do_bytes(command);
    case Op::kPoll:
    case Op::kSelect:
    case Op::kNewSet:
    case Op::kControl:
    case Op::kWaitSet:
    case Op::kPause:
        return do_waits(command);
    case Op::kSpawn:
    case Op::kGive:
    case Op::kTake:
    case Op::kThread:
    case Op::kFork:
    case Op::kExec:
    case Op::kReap:
    case Op::kExit:
        return do_process(actor, command, give);
    default:
        return do_files(command);
    }
}

// The comparer has to know which thread this is before it can tell whether it sleeps.
void greet(const Actor &actor)
{
    Reply reply;
    reply.process = ::getpid();
    reply.thread = static_cast<int>(::syscall(SYS_gettid));
    send_message(actor.channel, &reply, sizeof reply);
}

} // namespace

Reply outcome(std::int64_t result) noexcept
{
    Reply reply;
    reply.error = result < 0 ? errno : 0;
    reply.result = result;
    return reply;
}

void act(Actor actor)
{
    greet(actor);
    Command command;
    while (receive_message(actor.channel, &command, sizeof command, &actor.passed, true) == Arrival::kHere) {
        int give = -1;
        g_signals = 0;
        Reply reply = run(actor, command, &give);
        reply.signals = g_signals;
        if (!send_message(actor.channel, &reply, sizeof reply, give))
            break;
    }
    ::_exit(0);
}

int actor_main(char **argv)
{
    g_slots.fill(-1);
    ::signal(SIGPIPE, count_signal);
    Actor actor;
    actor.channel = std::atoi(argv[0]);
    for (int slot = 0; slot < kSlots && argv[slot + 1] != nullptr; ++slot)
        set_slot(slot, std::atoi(argv[slot + 1]));
    act(actor);
}

} // namespace compared
