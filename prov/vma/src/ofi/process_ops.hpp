// SPDX-License-Identifier: BSD-2-Clause
// FI_VMA_PROCESS_OPS of fi_ext_vma.h: for a program that uses the provider without libfabric.so.
#pragma once

#include <rdma/fi_ext_vma.h>

namespace vma::ofi {

extern fi_ops_vma_process process_ops;

} // namespace vma::ofi
