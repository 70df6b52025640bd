// SPDX-License-Identifier: BSD-2-Clause
// A device as fi_info's `nic` describes it: what it is, where it sits on the bus, its link. MPI libraries choose the
// near device by it.
#pragma once

#include <rdma/fabric.h>

#include "verbs/nic.hpp"

namespace vma::verbs {

// Into the info's `nic`, which is empty; stays so without memory. fi_freeinfo() closes it.
void describe(const Nic &nic, const ofi::Address &address, fi_info &info) noexcept;

} // namespace vma::verbs
