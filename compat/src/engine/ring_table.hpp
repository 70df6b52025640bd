// SPDX-License-Identifier: BSD-2-Clause
// The rings of this process. Private to the engine.
#pragma once

#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <atomic>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/engine/arrivals.hpp"
#include "compat/src/engine/rings.hpp"

namespace vma::sock {

struct alignas(64) Ring {
    Mutex poll_lock;
    std::atomic<std::uint32_t> asleep{0}; // threads that armed the queue and sleep
    std::atomic<std::uint64_t> polls{0};  // written with the poll lock held
    std::uint64_t hits = 0;               // likewise, and below: polls that found something
    std::uint64_t most = 0;               // that one found
    bool takes_guests = false;            // peers of other users: claim_ring_for_guests()
    fid_cq *cq = nullptr;                 // once it is in more_rings.open
    int fd = -1;
    fid_ep *datagrams = nullptr;     // that come for its sockets, once there was one. Offload lock
    std::uint16_t datagram_port = 0; // of it, host byte order; 0: there is none
    udp::Arrivals arrivals;          // of it
    std::uint64_t polls_seen = 0;    // helper thread
    RingKey key;                     // whose it is, while it has users. Offload lock
    std::uint32_t users = 0;         // endpoints. Offload lock
};

// Offload lock held. 0 or a negative fi_errno, with nothing open.
int open_ring(Ring &r, bool for_guests);

} // namespace vma::sock
