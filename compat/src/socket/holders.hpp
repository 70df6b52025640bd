// SPDX-License-Identifier: BSD-2-Clause
// Sockets that several processes hold after a fork(). Each counts the bytes that it moves by the kernel in memory that all
// of them share; whoever is left alone goes on with the sums, and may be lifted again.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace vma::sock {

class Socket;

// One entry of the shared memory. Free when it has no holder.
struct Holders;

// A fork: once before it; for each socket before it, which the child will hold too; in the child; and in the parent, when it knows the child, which may die
// before it can say so. All by the thread that forks. The first three with g_lift_lock held.
void holders_before_fork();
void share_with_child(Socket &s);
void holders_after_fork_in_child(Socket &s);
void holders_after_fork(Socket &s, pid_t child);

// Somebody holds it of whom we don't hear when he is done, or who doesn't count: never to be lifted again.
void share_for_good(Socket &s);

// This process has closed its last descriptor of it, or is about to.
void leave_holders(Socket &s);

// True: this process holds it alone (again), and s.tx, s.rx count all bytes. Looks at the other processes: a system call each.
bool hold_alone(Socket &s);

// n bytes went by the kernel in a bare call.
void count_sent(Socket &s, std::uint64_t n);
void count_received(Socket &s, std::uint64_t n);

} // namespace vma::sock
