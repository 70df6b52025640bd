// SPDX-License-Identifier: BSD-2-Clause
// The host's clock that is never set.
#pragma once

#include <cstdint>
#include <ctime>

namespace vma::core {

// CLOCK_MONOTONIC in ns. Thread-safe.
inline std::uint64_t monotonic_ns() noexcept
{
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

} // namespace vma::core
