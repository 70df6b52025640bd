// SPDX-License-Identifier: BSD-2-Clause
// Who left a name in the shared directory. Processes of several containers may share that, and the network, but not the
// numbers of processes (pid_namespaces(7)): the first of each has the number 1. So a number says nothing without its
// namespace.
#pragma once

#include <sys/types.h>

#include <cinttypes>
#include <cstdint>

namespace vma::sock {

struct Owner {
    pid_t process = 0;
    std::uint64_t space = 0; // of its number: the namespace's inode. 0: it has no /proc to tell it
    bool operator==(const Owner &) const = default;
};
// As the target of a symbolic link begins with; what else it says follows.
#define VMA_AUTHOR_PRINTED "2.%d@%" PRIx64 "."
#define VMA_AUTHOR_SCANNED "2.%d@%" SCNx64 "."

Owner this_process(); // a system call: a child of fork() may have numbers of its own, see fork(2)

std::uint64_t pid_space(); // of this process's number; 0: unknown

// Where it can't be told whether who has left a name lives: it stays for an hour. As fstatat(2) has it.
bool is_old(int directory, const char *name);

// Offers, and names and wishes of datagram sockets, in the directory; a number of another namespace is asked for by the
// endpoint that it names. Only what a living process has left stays, and wishes of which that can't be told for an
// hour. Any thread.
void remove_names_of_the_dead(const char *directory);

} // namespace vma::sock
