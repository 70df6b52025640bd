// SPDX-License-Identifier: BSD-2-Clause
// The rate that a socket may send at, and its turn among those that wait for theirs (transport/pacing.hpp).
#pragma once

#include <atomic>
#include <cstdint>

#include "vma/pacer.hpp"
#include "vma/wheel.hpp"

namespace vma::sock {

class Socket;

// Of one socket. Changed with its tx_lock held.
struct Pacing {
    struct Turn : Timer {
        Socket *socket = nullptr;
    };

    std::atomic<bool> limited{false};
    std::uint64_t rate = Pacer::kUnlimited; // bytes a second
    std::uint32_t max_burst = 0;
    std::uint16_t typical_packet = 0;
    Pacer pacer;                              // datagrams
    std::atomic<std::uint64_t> held_until{0}; // ns: a send was refused before this; 0: none was
    Turn turn;                                // the list's lock
};

void forget_pacing(Socket &s);      // the socket is made
void forget_pacing_turn(Socket &s); // it waits no more
bool is_held(const Socket &s);      // a send was refused, and it is not its turn yet. No lock needed
// A send would be refused still; no lock needed. Only the clock changes that: whoever watches the socket hears of it.
// ns; INT64_MAX when it is not held
std::int64_t held_until(const Socket &s);

} // namespace vma::sock
