// SPDX-License-Identifier: BSD-2-Clause
// What the entries of an io_uring that the library reads mean for its sockets and epoll sets.
#pragma once

#include <cstdint>

#include "compat/src/table/read_urings.hpp"

namespace vma::intercept {

// What one io_uring_enter() hands to the kernel.
struct UringPiece {
    std::uint32_t count;
    std::uint32_t done; // of these: the library has done them, and the kernel completes them at once
    bool stopped;       // the next one is to be looked at once these have been taken
};

// Claims up to `wanted` entries, and does with each what has to be done before the kernel takes it: the sockets that it
// names are the kernel's, and an EPOLL_CTL of a set that we have taken over is done. One of the two below is due then.
// No lock is held.
UringPiece look_at_entries(const sock::UringReference &uring, std::uint32_t wanted);

// After the kernel took `taken` of them.
void entries_taken(const sock::UringReference &uring, const UringPiece &piece, std::uint32_t taken);
// It took some of them, or none: a signal handler jumps out of the call, or its thread ends.
void entries_left(const sock::UringReference &uring);

// A number that the io_uring keeps the file of: IORING_REGISTER_FILES and its like.
void file_registered(int fd);
void files_registered(const int *fds, std::uint32_t count); // that can be read or not

} // namespace vma::intercept
