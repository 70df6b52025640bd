// SPDX-License-Identifier: BSD-2-Clause
// How the kernel would send a socket's datagrams to a group: by which interface, from which address, and whether
// sockets of this host may get it back.
#pragma once

#include <cstdint>

#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/rendezvous/interface.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

struct Departure {
    Flow flow = {};
    GroupRoute way = {};
    bool v4 = false;       // the datagram is
    bool loops = false;    // IP_MULTICAST_LOOP, or IPV6_MULTICAST_LOOP, as the program has it
    std::uint8_t hops = 1; // IP_MULTICAST_TTL, or IPV6_MULTICAST_HOPS
};

// tx_lock held. False: the kernel sends it, and says how.
bool find_departure(const State &u, int fd, const Destination &to, Departure &out);

// It goes to the wire by `way`'s interface, whoever writes the frame: neither does it end on this host, nor is it a
// router's of ours.
bool is_kernel_only_departure(const Departure &d);

} // namespace vma::sock::udp
