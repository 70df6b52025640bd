// SPDX-License-Identifier: BSD-2-Clause
// How a connector tells the acceptor of its connection where to attach: a symlink named after the four addresses in a
// directory of the user (doc/rendezvous.md). All that is read there is checked.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "compat/src/base/addresses.hpp"
#include "compat/src/rendezvous/generation.hpp"

namespace vma::sock {

class Socket;

// Reads both addresses of a connected kernel socket. False: not connected, or not an internet address.
bool read_addresses(int fd, Addresses &out);
bool on_this_host(const Addresses &a); // loopback, or both ends have the same address

struct Offer {
    std::uint16_t port;   // of the connector's passive endpoint
    std::uint32_t socket; // index in the connector's pool
    std::uint64_t cookie; // random, proves that the offer was read
};

// Prepares directory and generation page; removes offers of the dead. False (logged once): no offloading in this
// process.
bool open_offers();
const char *offers_directory(); // its path, once opened
inline constexpr std::size_t kOffersPathMax = 256;
void offers_path(char (&out)[kOffersPathMax]); // where it is or would be; nowhere, if its name is too long

bool publish_offer(const Addresses &a, const Offer &offer);
bool find_offer(const Addresses &a, Offer &out); // as seen from the acceptor: local and peer are swapped
void remove_offer(const Addresses &a, bool as_acceptor);
Generations &generations(); // words of nobody until open_offers()
bool offers_are_open();     // one load
// Theirs. Part of each name: who has other words is not to find it, as it doesn't hear of changes.
std::uint32_t generations_id();
std::uint32_t offers_generation(); // changes with each offer of this user; one load

void withdraw_offer(Socket &s); // if it has one
std::uint64_t random_cookie();  // never 0

} // namespace vma::sock
