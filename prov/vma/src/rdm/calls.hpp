// SPDX-License-Identifier: BSD-2-Clause
// The operation tables of a reliable-datagram endpoint that concern a peer's memory (remote_calls.cpp). The endpoint
// gets them when it is opened.
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

namespace vma::rdm {

extern fi_ops_rma rma_ops;
extern fi_ops_atomic atomic_ops;

} // namespace vma::rdm
