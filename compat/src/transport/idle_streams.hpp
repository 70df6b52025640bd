// SPDX-License-Identifier: BSD-2-Clause
// Where many connections of this host are accelerated, those that carry nothing go back to the kernel until they are
// used again: what a fork(), an exec and the memory of the process pay for each should be paid for what is in use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace vma::sock {

class Stream;

// Found in one turn of the helper thread; it holds the offload lock while it looks, and lets them go without.
class IdleStreams
{
public:
    // At a socket that has an endpoint of this host, each time that its ring is looked at. Offload lock held.
    void look_at(Stream &s);
    void look_at_shut(Stream &s); // one whose program has left it; its ring is of this host
    void let_go();                // no lock held

private:
    static constexpr std::size_t kMostInTurn = 4; // some 50 us each, and as much for the peer
    std::array<Stream *, kMostInTurn> found_ = {};
    std::size_t count_ = 0;
};

std::uint32_t idle_look_ms(); // between two looks at a socket

} // namespace vma::sock
