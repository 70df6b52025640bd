// SPDX-License-Identifier: BSD-2-Clause
// A shared receive context with FI_PEER, as the program has it that opens one (fi_peer(3)): whom an endpoint that is
// bound to it matches by.
#pragma once

#include <atomic>
#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include "rdm/srx_owner.hpp"

namespace vma::ofi {
struct Domain;
}

namespace vma::rdm {

struct PeerSrx {
    fid_ep fid{}; // first
    ofi::Domain &domain;
    SrxOwner owner;
    std::atomic<int> refs{0}; // endpoints
    // An endpoint's own tables but for the receives, which are posted with the owner.
    fi_ops_msg msg_ops{};
    fi_ops_tagged tagged_ops{};

    explicit PeerSrx(ofi::Domain &its_domain) noexcept : domain(its_domain) {}
};

// nullptr: it is none.
PeerSrx *peer_srx_of(struct fid *fid) noexcept;

// `context` is that of fi_srx_context(), and comes from a libfabric of that version. 0 or a negative fi_errno.
int open_peer_srx(ofi::Domain &domain, std::uint32_t version, fid_ep **srx, const void *context) noexcept;

// What an owner calls, for each layout of its entries (by_owner.cpp).
ofi::peer::SrxPeerOps &peer_ops(SrxLayout layout) noexcept;

} // namespace vma::rdm
