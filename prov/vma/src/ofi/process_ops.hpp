// SPDX-License-Identifier: BSD-2-Clause
// FI_VMA_PROCESS_OPS of fi_ext_vma.h: for a program that uses the provider without libfabric.so.
#pragma once

#include <cstddef>

#include <rdma/fi_ext_vma.h>

namespace vma::ofi {

extern fi_ops_vma_process process_ops;

// The program's, if it has set one; both nullptr: none. Thread-safe.
struct FrameAllocator {
    void *(*allocate)(std::size_t bytes) = nullptr;
    void (*release)(void *memory) = nullptr;
};
FrameAllocator frame_allocator() noexcept;

} // namespace vma::ofi
