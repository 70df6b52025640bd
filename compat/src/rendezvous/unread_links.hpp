// SPDX-License-Identifier: BSD-2-Clause
// The symbolic links in the shared directory that name a System V segment of unread bytes (shared_leftovers.hpp) after
// its socket. Whoever opens the directory removes those of sockets that the kernel doesn't have any more.
#pragma once

#include <sys/shm.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace vma::sock {

// A socket, for as long as this kernel runs.
struct UnreadName {
    std::uint64_t network = 0;
    std::uint64_t cookie = 0;
};

struct UnreadPath {
    char text[400];
};

struct UnreadLink {
    key_t key = 0;            // of the segment: it is made after the link, so that none is ever without
    std::uint64_t secret = 0; // stands in the segment as well
    std::uint64_t inode = 0;  // of the socket
    std::uint64_t space = 0;  // of the numbers of processes, where it was made: pid_space()
};

UnreadPath unread_folder();
UnreadPath link_path(const UnreadName &name);
bool name_of(int fd, UnreadName &name); // false: errno says why
std::uint64_t inode_of(int fd);         // of a socket; 0: unknown

bool read_link(const UnreadPath &path, UnreadLink &link);
bool make_link(const UnreadPath &path, const UnreadLink &link);
// The segment of a link, if this user has made it and it has so many bytes, and what shmctl(2) tells of it. -1: there
// is none.
int find_segment(const UnreadLink &link, shmid_ds &about, std::size_t least);
void remove_unread(const UnreadPath &path, int id);
void remove_unread_of_the_dead(); // no lock held

} // namespace vma::sock
