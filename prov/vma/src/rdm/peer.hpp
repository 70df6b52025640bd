// SPDX-License-Identifier: BSD-2-Clause
// One port that ours talks with: the ring to it and those from it, or the network to it, and what is under way in both
// directions. It is made at the first word in either direction and stays; the rings go with the endpoint behind them.
// Another one may have the port then, also while rings from its predecessor are still being read. So all that is not
// said at once says which incarnation it is for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "local/cma.hpp"
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
    std::uint64_t to = 0; // whom it is for
    Bytes bytes;
    std::size_t length = 0;
    TargetList source{}; // of a read whose bytes go through the ring: where they are
    bool streams = false;
};

struct Peer {
    enum class Reach : std::uint8_t { unknown, yes, no };

    // An endpoint that has the port, or had it, and whose ring we read; on another host, all that ever had it.
    struct Sender {
        const local::Inlet *inlet = nullptr; // nullptr: on another host
        std::uint64_t identity = 0;
        std::uint64_t number = 0; // of the ring, among all that ever joined the endpoint
        Reach we_reach_it = Reach::unknown;
        local::CmaPeer memory{};        // where we do
        std::uint32_t failed_write = 0; // number of its write in pieces of which one has failed, or the last one
        int failed_write_error = 0;
    };

    // One of the two: on this host, or on another one.
    std::unique_ptr<local::Outlet> out;
    std::unique_ptr<NetworkPeer> net;
    std::vector<Sender> senders; // in the order in which they came
    ofi::Address name;           // as it calls itself, once it has sent something
    std::uint16_t port = 0;
    bool greeted = false;                 // our hello is in the ring that we write, or was sent
    bool busy = false;                    // in the endpoint's list of those with something left to write
    Reach it_reaches_us = Reach::unknown; // by single copy, it says
    std::uint32_t outstanding = 0;        // operations that have not ended
    Operation *first_writing = nullptr;
    Operation *last_writing = nullptr;
    Operation *first_leaving = nullptr;
    Operation *last_leaving = nullptr;
    std::deque<Reply> replies;
    Message *streams = nullptr; // messages of which more is to come

    // Who reads what we write, or did last.
    std::uint64_t reader() const noexcept { return net == nullptr ? out->leads_to() : net->id; }
    bool leads_to(std::uint64_t identity) const noexcept { return local::may_be(reader(), identity); }
    // Whom the ring is of; nullptr: of nobody that has joined.
    Sender *sender_of(const local::Inlet *inlet) noexcept
    {
        const auto found = std::find_if(senders.begin(), senders.end(),
                                        [inlet](const Sender &sender) { return sender.inlet == inlet; });
        return found != senders.end() ? &*found : nullptr;
    }
    // A ring of that endpoint's, which was not read to its end yet.
    const Sender *find_sender(std::uint64_t identity) const noexcept
    {
        const auto found = std::find_if(senders.begin(), senders.end(), [identity](const Sender &sender) {
            return local::may_be(sender.identity, identity);
        });
        return found != senders.end() ? &*found : nullptr;
    }

    // The ring with that number, if it is still there.
    const Sender *find_ring(std::uint64_t number) const noexcept
    {
        const auto found = std::find_if(senders.begin(), senders.end(),
                                        [number](const Sender &sender) { return sender.number == number; });
        return found != senders.end() ? &*found : nullptr;
    }

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
