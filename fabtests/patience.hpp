// SPDX-License-Identifier: BSD-2-Clause
// How long a test waits for what only a hang keeps away: a minute at least, and as many times that as the machine is
// slower than the usual one, which FABTESTS_PATIENCE says (fabtests/lib/patience.py measures it).
#pragma once

#include <stdlib.h>

#include <chrono>
#include <cstdint>

namespace patience {

inline int seconds() noexcept
{
    constexpr int kUsual = 60;
    const char *const factor = ::getenv("FABTESTS_PATIENCE");
    const double times = factor != nullptr ? ::strtod(factor, nullptr) : 1;
    return times > 1 ? static_cast<int>(kUsual * times) : kUsual;
}

inline int milliseconds() noexcept
{
    return 1000 * seconds();
}

inline std::int64_t nanoseconds() noexcept
{
    return INT64_C(1'000'000'000) * seconds();
}

// Of a loop that looks again and again: how often it does so within a time is the machine's affair.
class Deadline
{
public:
    bool over() const noexcept { return std::chrono::steady_clock::now() > end_; }

private:
    std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + std::chrono::seconds(seconds());
};

} // namespace patience
