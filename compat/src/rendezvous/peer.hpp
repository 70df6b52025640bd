// SPDX-License-Identifier: BSD-2-Clause
// Who has the other end of a TCP connection, as the kernel tells without a privilege: whether it is on this host at
// all, whose it is, and by which number both sides can call it.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "compat/src/base/addresses.hpp"

namespace vma::sock {

struct Peer {
    std::uint64_t cookie = 0; // SO_COOKIE
    std::uint32_t inode = 0;  // of the socket's
    uid_t user = 0;           // as this process sees users
};

enum class PeerAnswer : std::uint8_t {
    kHere,    // a process of this host has it
    kNotYet,  // nobody has accepted it
    kNotHere, // not in this network namespace
    kUnknown, // the kernel doesn't tell
};

// Some two microseconds.
PeerAnswer ask_for_peer(const Addresses &addresses, Peer &out);

// The same of a socket of this process. False: the kernel doesn't tell.
bool identify_own(int fd, Peer &out);

} // namespace vma::sock
