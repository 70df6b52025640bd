// SPDX-License-Identifier: BSD-2-Clause
// The provider's own calls of libc come to our wrappers too, as it is loaded into a process where these stand before
// libc's. What it makes for itself must not be taken for the program's; who calls is told by the return address.
#pragma once

#include <cstdint>

#include "compat/src/libc/private_fd.hpp"

namespace vma::libc {

// Remembers the library that a function of it is in.
void know_provider(const void *function);

inline bool is_provider(const void *return_address)
{
    const auto address = reinterpret_cast<std::uintptr_t>(return_address);
    return address >= g_private.provider_start.load(std::memory_order_relaxed) &&
           address < g_private.provider_end.load(std::memory_order_relaxed);
}

} // namespace vma::libc
