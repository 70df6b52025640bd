// SPDX-License-Identifier: BSD-2-Clause
// The stretches of a connection's life that are stepped through: who is stepped, and which of its threads. What the two
// sides do in each is in talker.cpp.
#pragma once

#include <cstring>

#include "fabtests/steps/programs/board.hpp"

namespace step {

enum class Thread {
    kMain,
    kHelper,    // the library's, which is there already
    kNewLoader, // the first that the library starts, from its first instruction on: it loads the provider
    kNewHelper  // the second: the one that stays
};

constexpr bool is_new(Thread thread)
{
    return thread == Thread::kNewLoader || thread == Thread::kNewHelper;
}

struct Scenario {
    const char *name;
    Role victim;
    Thread thread;
    const char *what;
};

constexpr Scenario kScenarios[] = {
    {"connect", kWriter, Thread::kMain, "socket(), connect()"},
    {"accept", kReader, Thread::kMain, "listen(), accept()"},
    {"offload_connector", kWriter, Thread::kMain, "the first round trips, until both directions are on endpoints"},
    {"offload_acceptor", kReader, Thread::kMain, "the same, of who accepted"},
    {"offload_connector_loader", kWriter, Thread::kNewLoader, "the same, in the thread that loads the provider"},
    {"offload_connector_helper", kWriter, Thread::kNewHelper, "the same, in the library's thread"},
    {"offload_acceptor_helper", kReader, Thread::kNewHelper, "the same, in the library's thread of who accepted"},
    {"send", kWriter, Thread::kMain, "send() with room, then shutdown()"},
    {"resend_shutdown", kWriter, Thread::kMain, "the peer forked: what it has not read is sent again, then shutdown()"},
    {"resend_close", kWriter, Thread::kMain, "the same, then close()"},
    {"resend_exit", kWriter, Thread::kMain, "the same, then exit()"},
    {"resend_pin", kWriter, Thread::kMain, "the same, the peer having set an option that only the kernel has"},
    {"resend_helper", kWriter, Thread::kHelper, "the same, by the library's thread"},
    {"ask", kWriter, Thread::kMain, "a send that waits for room in a full ring, then shutdown()"},
    {"ask_helper", kReader, Thread::kHelper, "the same, of the library's thread that is asked"},
    {"end_shutdown", kWriter, Thread::kMain, "shutdown() with bytes unread"},
    {"end_close", kWriter, Thread::kMain, "close() with bytes unread"},
    {"end_exit", kWriter, Thread::kMain, "exit() with bytes unread"},
    {"read_end", kReader, Thread::kMain, "reading what is there, and the end"},
    {"poll_reader", kReader, Thread::kMain, "poll() and recv(), again and again, to the end"},
    {"epoll_reader", kReader, Thread::kMain, "epoll_wait() and recv(), again and again, to the end"},
    {"close_reader", kReader, Thread::kMain, "close() without having read"},
    {"fork_writer", kWriter, Thread::kMain, "fork(), the child sends, the parent goes on"},
    {"fork_reader", kReader, Thread::kMain, "fork(), the child reads to the end"},
    {"fork_past", kReader, Thread::kMain, "fork() of a child that does nothing, reading to the end"},
    {"exec_writer", kWriter, Thread::kMain, "execve(), the program goes on sending"},
    {"exec_reader", kReader, Thread::kMain, "execve(), the program goes on reading"},
    {"pin_writer", kWriter, Thread::kMain, "an option that only the kernel has, then more bytes"},
    {"pin_reader", kReader, Thread::kMain, "an option that only the kernel has, then reading"},
};

inline const Scenario *find_scenario(const char *name)
{
    for (const Scenario &scenario : kScenarios)
        if (std::strcmp(scenario.name, name) == 0)
            return &scenario;
    return nullptr;
}

} // namespace step
