// SPDX-License-Identifier: BSD-2-Clause
// The one function of the reliable datagrams that the local device knows: it opens their endpoints for a program that asks for FI_EP_RDM.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

namespace vma::ofi {
struct Domain;
}

namespace vma::rdm {

// 0 or a negative fi_errno.
int open_endpoint(ofi::Domain &domain, const fi_info *info, fid_ep **ep, void *context) noexcept;

} // namespace vma::rdm
