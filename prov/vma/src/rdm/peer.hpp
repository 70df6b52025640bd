// SPDX-License-Identifier: BSD-2-Clause
// One endpoint that ours talks with: the ring to it and the ring from it, or the network to it, and what is under way
// in both directions. It is made at the first word in either direction and stays; the rings go with the process behind
// them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "local/ring/outlet.hpp"
#include "ofi/address.hpp"
#include "rdm/network.hpp"
#include "rdm/operation.hpp"
#include "rdm/receive.hpp"

namespace vma::local {
class Inlet;
}

namespace vma::rdm {

// What we say to a request of the peer's. It waits here when our ring to it is full, so that two full rings never wait
// for each other.
struct Reply {
    Packet packet{};
    Bytes bytes;
    std::size_t length = 0;
    TargetList source{}; // of a read whose bytes go through the ring: where they are
    bool streams = false;
};

struct Peer {
    enum class Reach : std::uint8_t { unknown, yes, no };

    // One of the two: on this host, or on another one.
    std::unique_ptr<local::Outlet> out;
    std::unique_ptr<NetworkPeer> net;
    local::Inlet *inlet = nullptr;
    ofi::Address name; // as it calls itself, once it has sent something
    std::uint16_t port = 0;
    bool greeted = false;                 // our hello is in the ring that we write, or was sent
    bool busy = false;                    // in the endpoint's list of those with something left to write
    Reach it_reaches_us = Reach::unknown; // by single copy, it says
    Reach we_reach_it = Reach::unknown;
    pid_t pid = -1;                 // of who makes the ring that we read, as far as we_reach_it
    std::uint32_t failed_write = 0; // number of its write in pieces of which one has failed, or the last one
    int failed_write_error = 0;
    std::uint32_t outstanding = 0; // operations that have not ended
    Operation *first_writing = nullptr;
    Operation *last_writing = nullptr;
    Operation *first_leaving = nullptr;
    Operation *last_leaving = nullptr;
    std::deque<Reply> replies;
    Message *streams = nullptr; // messages of which more is to come

    bool has_work() const noexcept { return first_writing != nullptr || !replies.empty(); }

    // Where the next packet to it is to be written; nullptr: there is no room.
    std::byte *claim(std::size_t length) noexcept
    {
        return net == nullptr ? out->claim_kept(length) : net->network.claim(*net);
    }
    // False: it is gone, and the packet lost.
    bool publish(std::size_t length, bool has_data, std::uint64_t data, local::Bell &bell) noexcept
    {
        if (net == nullptr) [[likely]]
            return out->publish(length, has_data, data, bell);
        net->network.publish(*net, length, has_data, data);
        return !net->lost;
    }
    bool connected() const noexcept { return net == nullptr ? out->connected() : !net->lost; }
    // There is something to look_after().
    bool has_news() const noexcept { return net == nullptr ? out->has_news() : net->lost; }
};

} // namespace vma::rdm
