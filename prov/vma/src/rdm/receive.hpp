// SPDX-License-Identifier: BSD-2-Clause
// The two things that meet in a reliable-datagram endpoint: a receive that the program has posted, and a message that
// came without one or is not whole yet. Who matches whom is match.hpp's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <sys/uio.h>

#include <rdma/fabric.h>

#include "ofi/info/attr.hpp"
#include "ofi/peer/abi.hpp"
#include "rdm/match.hpp"

namespace vma::local {
class Inlet;
}

namespace vma::rdm {

struct Peer;
class RdmEndpoint;

struct Receive : Posted {
    iovec iov[ofi::kIovLimit]{};
    std::uint32_t iov_count = 0;
    bool completion = false;
    bool multi = false;   // FI_MULTI_RECV: it stays until less than FI_OPT_MIN_MULTI_RECV is left
    bool used_up = false; // a multiple one that takes no more
    bool cancelled = false;
    bool tagged = false;
    bool posted = false;     // in the list of the endpoint
    std::uint32_t users = 0; // messages that are on their way into a multiple one
    std::uint64_t length = 0;
    std::uint64_t used = 0; // bytes of a multiple one
    void *context = nullptr;
    ofi::peer::RxEntry *entry = nullptr; // the owner's (fi_peer(3)) for which it stands
    Receive *next_free = nullptr;
    std::uint32_t index = 0;
};

// Which endpoint an answer is for: a peer is who has a port, and that may be another one by now. The identity is what
// local::identity_of() says, or what an endpoint on another host calls itself; 0: unknown.
struct Whom {
    Peer &peer;
    std::uint64_t identity;
};

// What a completion says of a message.
struct Told {
    std::uint64_t length;
    std::uint64_t tag;
    std::uint64_t data;
    fi_addr_t from;
    bool has_data;
};

// Where in a receive a message goes.
struct Landing {
    Receive *receive = nullptr;
    iovec iov[ofi::kIovLimit]{};
    std::uint32_t iov_count = 0;
    std::uint64_t room = 0; // bytes, at most the message's length
};

struct FreeBytes {
    void operator()(std::byte *bytes) const noexcept { std::free(bytes); }
};
using Bytes = std::unique_ptr<std::byte[], FreeBytes>;

struct Message : Arrival {
    enum class Form : std::uint8_t {
        whole,  // `bytes` has all of it
        stream, // more of it is to come: to `landing` once a receive has it, else to `bytes`
        offer,  // it is in the sender's memory, at `iov`
    };
    Form form = Form::whole;
    bool tagged = false;
    bool has_data = false;
    bool ack = false;       // the sender waits for an answer
    bool discarded = false; // of a stream: what comes of it is dropped
    bool announced = false; // of a stream: nothing comes before it was asked for
    std::uint32_t id = 0;   // the sender's number
    std::uint64_t length = 0;
    std::uint64_t data = 0;
    std::uint64_t arrived = 0; // bytes, of a stream
    Bytes bytes;
    std::uint64_t held = 0; // bytes that `bytes` counts for in the endpoint's bound
    Landing landing;
    iovec iov[ofi::kIovLimit]{};
    std::uint32_t iov_count = 0;
    Peer *peer = nullptr;
    std::uint64_t sender = 0;            // which incarnation of the peer's it is of
    std::uint64_t ring = 0;              // of an offer: the number of the ring that it came by
    const local::Inlet *inlet = nullptr; // that it comes through, as long as it is a stream
    fi_addr_t from = FI_ADDR_NOTAVAIL;
    void *claimed_by = nullptr; // the context of FI_CLAIM
    Message *next = nullptr;    // of the peer's streams
    // Of one that an owner matches (by_owner.cpp): its entry, as long as that waits for a receive, and what has
    // happened to it meanwhile.
    ofi::peer::RxEntry *entry = nullptr;
    RdmEndpoint *at = nullptr;
    int failed = 0; // a positive fi_errno: there is nothing to be received any more
    Message *next_free = nullptr;
    std::uint32_t index = 0;

    Told told() const noexcept { return {length, tag, data, from, has_data}; }
    Whom whom() const noexcept { return {*peer, sender}; }
};

} // namespace vma::rdm
