// SPDX-License-Identifier: BSD-2-Clause
// One connection as the connection manager sees it, from request to shutdown. The data path knows nothing of it.
#pragma once

#include <cstdint>
#include <memory>

#include <rdma/fabric.h>

#include "local/cm/link.hpp"
#include "ofi/address.hpp"

namespace vma::local {

class Endpoint;
class PassiveEndpoint;

struct Connection {
    enum class State : std::uint8_t {
        requesting, // we asked, or are going to as soon as the listener has room
        pending,    // asked by the peer; the program has not answered
        connected,
    };

    fid handle{}; // first: FI_CLASS_CONNREQ, what the program hands to fi_endpoint or fi_reject
    State state = State::requesting;
    bool cached_link = false;       // requesting: over a link that was made for an earlier connection
    bool asked_again = false;       // requesting: as the peer had no room for what came with it
    bool retrying = false;          // requesting: in the manager's retry list
    std::uint32_t id = 0;           // on its link
    Link *link = nullptr;           // none before the request is sent, and once the peer is gone
    Endpoint *endpoint = nullptr;   // pending: only once fi_endpoint took the handle
    PassiveEndpoint *pep = nullptr; // pending: who was asked, while it is open
    ofi::Address local;
    ofi::Address peer;
    EndpointOffer offer{};                // pending: the peer's, unchecked
    PeerParts parts;                      // pending: that came with it
    std::unique_ptr<LinkMessage> request; // requesting: to send it again
};

} // namespace vma::local
