// SPDX-License-Identifier: BSD-2-Clause
// fi_mr_reg() on a NIC's domain. By raw packets the memory is registered with the RDMA device, whose key
// FI_VMA_LOCAL_KEY tells; by AF_XDP, which takes no memory but its own, it is an entry in the domain's table, as of the
// local device.
#pragma once

#include <rdma/fi_domain.h>

namespace vma::ether {

extern fi_ops_mr registration_ops;

} // namespace vma::ether
