// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/config/once.hpp"

#include <atomic>

namespace vma::config {

namespace {

constinit std::atomic<std::uint32_t> g_said{0}; // a bit each

} // namespace

bool is_first(Once what)
{
    const std::uint32_t bit = std::uint32_t{1} << static_cast<unsigned>(what);
    return (g_said.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

} // namespace vma::config
