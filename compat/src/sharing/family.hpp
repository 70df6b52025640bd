// SPDX-License-Identifier: BSD-2-Clause
// Which processes of a family (those that fork() has made of one another) hold which kernel sockets and epoll sets: a
// number for each that others may hold, in memory that all of them share. A fork copies a row of bits and counts, and
// asks nobody. What the sockets are, and what is done with them, is not here (holders.hpp).
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace vma::sock::family {

// The number of a kernel socket, or of an epoll set, in the family.
using Cell = std::uint32_t;
inline constexpr Cell kNoCell = 0;

// This process holds it, as the first one. kNoCell: none is left, or there is no memory. Offload lock held, as for all
// that follows but leave(), keep_for_good(), changes(), note_change() and after_fork().
Cell take();

// This process has closed it. Async-signal-safe.
void leave(Cell cell);

// Somebody may hold it of whom nothing will be heard.
void keep_for_good(Cell cell);

// True: no other process holds it any more. Asks the kernel about those that did not say so: a system call each.
bool is_alone(Cell cell);

// How often it was changed, by whichever process, and one change more. No lock held.
std::uint32_t changes(Cell cell);
void note_change(Cell cell);

// The child of the fork that comes will hold what this process holds. False: there is no room for one more process, and
// all this is held for good.
bool before_fork();
void no_fork_shares(); // instead: there is nothing that it could hold
void after_fork_in_child();
// In the parent: the child's number, or a negative one if there is none. By the thread that forked.
void after_fork(pid_t child);

// This process is about to be another program, which holds nothing of this (what survives was kept for good before).
// The others believe that once the kernel has closed our descriptors.
void exec_begins();
void exec_failed();

// Smaller tables, for tests. Before the first of the above.
void set_limits(std::uint32_t processes, std::uint32_t cells);

} // namespace vma::sock::family
