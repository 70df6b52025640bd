// SPDX-License-Identifier: BSD-2-Clause
// How a sender finds the process behind a UDP socket of this host: names in the user's directory, after the identity
// that the kernel gives each socket. A receiver has one while it takes datagrams by its endpoint; a sender that finds
// none leaves a wish for it. All that is read there is checked.
#pragma once

#include <atomic>
#include <cstdint>

#include "compat/src/rendezvous/owner.hpp"

namespace vma::sock::udp {

// Unique on the host for as long as the kernel runs, in all network namespaces.
struct Identity {
    std::uint64_t cookie = 0; // SO_COOKIE
    std::uint32_t inode = 0;
    bool operator==(const Identity &) const = default;
};
bool identify(int fd, Identity &out);

struct Target {
    Owner owner;
    std::uint16_t port;   // of its datagram endpoint
    std::uint32_t index;  // of the socket in its pool
    std::uint32_t cookie; // what datagrams for it have to show
};

// The directory is opened (open_offers()).
bool publish_name(const Identity &who, const Target &target); // and takes a wish for it away
void withdraw_name(const Identity &who);
bool find_name(const Identity &who, Target &out);

std::uint32_t leave_wish(const Identity &who); // the generation after it
void withdraw_wish(const Identity &who);
bool is_wished(const Identity &who);

// Changes with each name, and with each wish, of this user; and when a socket that has a name gets another address.
std::uint32_t generation();    // one load
std::uint32_t names_changed(); // the new one

} // namespace vma::sock::udp
