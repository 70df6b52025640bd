// SPDX-License-Identifier: BSD-2-Clause
// Poll sets (fi_poll(3)): queues and counters that a program asks about together. libfabric has given them up, its
// programs have not.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

namespace vma::ofi {

// fi_poll_open(). 0 or a negative fi_errno.
int open_poll_set(fid_domain *domain, fi_poll_attr *attr, fid_poll **set);

} // namespace vma::ofi
