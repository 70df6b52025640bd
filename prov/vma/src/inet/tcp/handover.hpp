// SPDX-License-Identifier: BSD-2-Clause
// What one TCP passes on to another that carries the same connection on: a kernel's (TCP_REPAIR in tcp(7)) or one of
// ours. The connection is established; both sides of the wire notice nothing but a pause.
#pragma once

#include "prov/vma/src/inet/tcp/handshake.hpp"
#include "prov/vma/src/inet/tcp/seq.hpp"
#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

struct TcpHandover : Handshake {
    Flow flow;

    std::uint32_t timestamp = 0; // our clock's next value, in ms

    // Sending. Bytes from `una` to `nxt` are under way; what is queued begins at `una` too.
    Seq una = 0;
    Seq nxt = 0;
    std::uint32_t window = 0;            // that the peer has given, bytes
    std::uint32_t most_window = 0;       // ever, at least `window`
    Seq window_seq = 0;                  // of the segment that gave it
    std::uint32_t congestion_window = 0; // segments; 0: not known
    Nanos rtt = 0;                       // smoothed; 0: not known

    // Receiving. What is not read yet ends at `rcv`.
    Seq rcv = 0;
    Seq acked = 0;              // what the peer has last been told of it, at most `rcv`
    Seq advertised = 0;         // right edge of the window that it knows
    bool peer_finished = false; // its FIN stands at `rcv`, and has been acknowledged: only given, never taken
};

} // namespace vma::inet
