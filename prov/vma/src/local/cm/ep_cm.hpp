// SPDX-License-Identifier: BSD-2-Clause
// Connection management of an active endpoint: what the endpoint embeds, and what it calls. The work itself
// is done by the fabric's ConnectionManager (manager.hpp); everything is asynchronous and answered through
// the event queue.
#pragma once

#include <cstdint>
#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>

#include "core/fd.hpp"
#include "ofi/address.hpp"
#include "ofi/address_format.hpp"

namespace vma::ofi {
struct Eq;
}

namespace vma::local {

class Endpoint;
class LinkSegments;
class Listener;
struct Connection;
struct TcpEnd;

// Protected by the CM lock of the endpoint's fabric.
struct CmState {
    enum class Phase : std::uint8_t {
        idle,       // opened
        requested,  // made from a connection request that waits for fi_accept
        connecting, // fi_connect was called
        connected,
        closed, // shut down by either side, or refused
    };

    Phase phase = Phase::idle;
    ofi::Eq *eq = nullptr;
    Connection *connection = nullptr; // owned by its link
    ofi::Address local;
    ofi::Address peer;
    ofi::AddressFormat format;     // as the program writes them
    std::unique_ptr<TcpEnd> tcp;   // FI_OPT_VMA_TCP_SOCKET: only with a process that holds its other end
    core::UniqueFd link;           // FI_OPT_VMA_LINK: of the next request
    bool by_guest_link = false;    // it was set
    std::uint64_t link_number = 0; // of the peer's process, where it was introduced
    // Of the link that it is going to be offered over, if that is known when it is opened. Without the lock, as only
    // enable() takes it, which leaves it alone in a child.
    std::shared_ptr<LinkSegments> segments;
    std::unique_ptr<Listener> port; // reserved by the passive endpoint that this one was made from

    CmState() noexcept;
    ~CmState();
};

// The end of open_endpoint(): takes the addresses and the handle of the info. 0 or a negative fi_errno.
int cm_open(Endpoint &endpoint, const fi_info *info) noexcept;
// FI_OPT_VMA_TCP_SOCKET.
int cm_stand_beside(Endpoint &endpoint, const void *value, std::size_t length) noexcept;
// FI_OPT_VMA_LINK.
int cm_use_link(Endpoint &endpoint, const void *value, std::size_t length) noexcept;
// FI_OPT_VMA_NUDGE.
int cm_nudge(Endpoint &endpoint) noexcept;
int cm_bind_eq(Endpoint &endpoint, ofi::Eq &eq) noexcept;
// First thing in fi_close(): tells the peer, drops the endpoint's events. Nothing of CM touches the endpoint
// after it.
void cm_close(Endpoint &endpoint) noexcept;
// A peer broke the rules on the data path: logs, tells the link, reports FI_SHUTDOWN.
void cm_abort(Endpoint &endpoint, const char *why) noexcept;

extern fi_ops_cm endpoint_cm_ops;

} // namespace vma::local
