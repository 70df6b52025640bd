// SPDX-License-Identifier: BSD-2-Clause
// io_uring_setup(), io_uring_enter() and io_uring_register() by syscall(), and what liburing's functions share with
// them.
#pragma once

#include <cstdint>

#include "compat/src/table/read_urings.hpp"

namespace vma::intercept {

// The result, with errno.
long set_up_uring(const long (&arguments)[6], const void *caller);
long enter_uring(const long (&arguments)[6]);
long register_with_uring(const long (&arguments)[6]);

// `fd` was set up, as `made` says: its submissions are read from now on, or all sockets go to the kernel. Of `site` see
// sock::read_uring(). True: they are read.
bool uring_made(int fd, const io_uring_params &made, const void *site);

// How a call hands over `count` entries that were looked at: as the program made it but for their number (`whole`), or
// without all else that it is to do. Negative: an error.
struct HandOver {
    long (*call)(const void *how, std::uint32_t count, bool whole);
    const void *how;
};

// Looks at `wanted` entries of the io_uring with the number `fd`, and hands over as many. In pieces, where one entry
// must not be looked at before those in front of it have been taken; the last one is whole. `least`: how many
// completions the call waits for. How many were taken, or the error. No lock is held.
long hand_over_in_pieces(const sock::UringReference &uring, int fd, std::uint32_t wanted, std::uint32_t least,
                         const HandOver &hand);

} // namespace vma::intercept
