// SPDX-License-Identifier: BSD-2-Clause
// Sockets that several processes hold after a fork(). None of them may offload one before the others have gone: what
// they send by the kernel would come among the bytes of the endpoint. A fork costs some nanoseconds a socket, and
// touches none (family.hpp).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "compat/src/table/socket.hpp"

namespace vma::sock {

// A fork: before it, with the offload lock and the pool's held; in the child; and in the parent, when it knows the
// child, which may die before it can say so. All by the thread that forks. `others`: it will hold more than sockets.
void holders_before_fork(bool others = false);
void holders_after_fork_in_child();
void holders_after_fork(pid_t child);

// An exec, once what survives it was shared for good; and if it didn't happen.
void holders_before_exec();
void holders_after_exec();

// Written with the offload lock held, read without.
struct Held {
    std::atomic<std::uint32_t> forks{0}; // of this process, from 1 on
    std::atomic<std::uint32_t> cells[kMaxTracked] =
        {}; // by the index of the socket: its number in the family, 0 as long as no fork has seen it
};
extern Held g_held;

// Another process may hold it.
bool may_be_shared(const Socket &s);

// It was held by several, and somebody has it of whom we don't hear when he is done: never to be offloaded again.
void share_for_good(Socket &s);

// This process has closed its last descriptor of it, or is about to.
void leave_holders(Socket &s);

// True: this process holds it alone (again), s.tx, s.rx count all bytes, and what the others changed of the open file
// is known. Looks at the other processes, and asks the kernel: system calls. Offload lock held.
bool hold_alone(Socket &s);

// Whether it is time to ask that, after so many operations: 8 after a fork or the socket's return to the kernel, then
// 16 more, and so on; or at the first one after that which finds a direction free to be counted.
bool may_ask_for_holders(Stream &s, std::uint32_t operations);

// n bytes went by the kernel in a bare call.
void count_sent(Stream &s, std::uint64_t n);
void count_received(Stream &s, std::uint64_t n);

} // namespace vma::sock
