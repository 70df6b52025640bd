// SPDX-License-Identifier: BSD-2-Clause
#include "core/hwloc_table.hpp"

#include <atomic>

namespace vma::core {
namespace {

constexpr const char *kLibrary = "libhwloc.so.15"; // hwloc 2.x; it takes 2.1

constinit std::atomic<const char *> g_library{kLibrary};

} // namespace

std::optional<HwlocTable> open_hwloc() noexcept
{
    const Library library(g_library.load(std::memory_order_relaxed), "all devices count as equally near");
    HwlocTable table{};
    const bool is_whole = true VMA_HWLOC_FUNCTIONS(VMA_LIBRARY_FIND);
    return is_whole ? std::optional(table) : std::nullopt;
}

void use_hwloc_library(const char *name) noexcept
{
    g_library.store(name != nullptr ? name : kLibrary, std::memory_order_relaxed);
}

} // namespace vma::core
