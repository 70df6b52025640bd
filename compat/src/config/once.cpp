// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/config/once.hpp"

#include "compat/src/config/state.hpp"

namespace vma::config {

bool is_first(Once what)
{
    const std::uint32_t bit = std::uint32_t{1} << static_cast<unsigned>(what);
    return (g_config.said.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

} // namespace vma::config
