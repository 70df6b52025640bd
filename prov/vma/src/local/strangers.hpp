// SPDX-License-Identifier: BSD-2-Clause
// What another user's process sends to us, and how we let go of the sockets by which it can (vma/strangers.hpp).
#pragma once

#include <cstddef>
#include <span>
#include <sys/types.h>

#include "core/fd.hpp"
#include "vma/strangers.hpp"

namespace vma::local {

extern const StrangersCalls kStrangersCalls;

enum class Taken {
    message,
    nothing, // now
    end,
    refused, // it brings what can't be closed without asking anybody, or more than any message of ours
    lost,    // this process has no room for what it brings
};

struct StrangersMessage {
    std::size_t length = 0;
    int flags = 0; // MSG_TRUNC
    unsigned fd_count = 0;
};

// The next message of a SOCK_SEQPACKET socket that nobody else has, with its descriptors, all of which may be closed at
// any time. One that is refused or lost stays where it is. `fds` has room for as many as a message of ours brings.
Taken take_from_stranger(int socket, std::span<std::byte> bytes, std::span<core::UniqueFd> fds,
                         StrangersMessage &out) noexcept;

// Closes a socket that nobody else has, or leaves it open, as one does in which a message `was_refused`. In a forked
// child it does nothing. Keeps errno.
void let_go(core::UniqueFd socket, bool was_refused = false) noexcept;
void let_go_of_listener(core::UniqueFd socket) noexcept; // and of all who wait in it

} // namespace vma::local
