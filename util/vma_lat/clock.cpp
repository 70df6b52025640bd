// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/clock.hpp"

#include <signal.h>

#include <algorithm>
#include <array>

namespace vma::lat {

double clock_cost_ns()
{
    constexpr std::size_t kReadings = 64; // a pair of readings is shorter than the clock can tell
    std::array<double, 101> rounds{};
    for (double &round : rounds) {
        const std::uint64_t start = now_ns();
        std::uint64_t end = start;
        for (std::size_t i = 0; i < kReadings; ++i)
            end = now_ns();
        round = static_cast<double>(end - start) / kReadings;
    }
    std::nth_element(rounds.begin(), rounds.begin() + rounds.size() / 2, rounds.end());
    return rounds[rounds.size() / 2];
}

void catch_signals()
{
    struct sigaction action = {};
    action.sa_handler = [](int) { g_stop.store(true, std::memory_order_relaxed); };
    action.sa_flags = static_cast<int>(SA_RESETHAND); // and no SA_RESTART: a wait ends
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    action.sa_handler = SIG_IGN;
    action.sa_flags = 0;
    sigaction(SIGPIPE, &action, nullptr);
}

} // namespace vma::lat
