// SPDX-License-Identifier: BSD-2-Clause
// What the local device knows of reliable datagrams: it opens their endpoints for a program that asks for FI_EP_RDM,
// and what those match by with FI_PEER, and asks how far they reach.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

namespace vma::ofi {
struct Address;
struct Domain;
} // namespace vma::ofi

namespace vma::rdm {

// 0 or a negative fi_errno.
int open_endpoint(ofi::Domain &domain, const fi_info *info, fid_ep **ep, void *context) noexcept;
// Of fi_srx_context() with FI_PEER; `context` is its. Likewise.
int open_peer_srx(ofi::Domain &domain, fid_ep **srx, const void *context) noexcept;

// Whether there is a provider by which an endpoint with this address could reach other hosts. Asks libfabric:
// milliseconds.
bool reaches_other_hosts(const ofi::Address &source) noexcept;

} // namespace vma::rdm
