// SPDX-License-Identifier: BSD-2-Clause
// What a program, its libraries and those that it opens do with sockets at each moment of a process, before main() and
// after it. Each says what became of it; nothing of that may differ between two runs over the kernel.
#pragma once

// Uses the connection of the stage before and makes a new one for the next. Of the program's, in one of its libraries:
// all others find it.
extern "C" void order_stage(const char *name);

// In a child of fork(): its parent has the connection too, and waits. The end of one that two have is not to be seen.
extern "C" void order_in_child();

// Handlers of fork() that are stages too: "NAME: prepare", "NAME: parent", "NAME: child".
#define ORDER_FORK_HANDLERS(name)                                                                                      \
    ::pthread_atfork([] { order_stage(name ": prepare"); }, [] { order_stage(name ": parent"); },                      \
                     [] { order_stage(name ": child"); })
