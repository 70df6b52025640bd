// SPDX-License-Identifier: BSD-2-Clause
// What a connection's handshake agreed on.
#pragma once

#include <cstdint>

namespace vma::inet {

struct Handshake {
    bool timestamps = false;
    bool sack = false;
    bool scaling = false;
    bool ecn = false;
    std::uint8_t send_shift = 0;    // of the windows that the peer tells, at most 14
    std::uint8_t receive_shift = 0; // of those that we tell, at most 14
    std::uint16_t peer_mss =
        536; // what the peer takes, bytes without options: RFC 9293, 3.7.1; 1220 of IPv6 is set at open
};

} // namespace vma::inet
