// SPDX-License-Identifier: BSD-2-Clause
// Memory of a NIC's frames out of the program's own allocator (set_frame_allocator() of FI_VMA_PROCESS_OPS).
#pragma once

#include <cstddef>

#include "ether/nic/memory_map.hpp"

namespace vma::ether {

// So many bytes, at the beginning of a page, that a child of fork() does not get. Empty: there is no such allocator, or
// it has given nothing, which is logged: the caller maps its own.
[[nodiscard]] MemoryMap program_memory(std::size_t bytes) noexcept;

} // namespace vma::ether
