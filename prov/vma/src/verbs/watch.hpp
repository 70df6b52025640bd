// SPDX-License-Identifier: BSD-2-Clause
// Keep-alive and the send time-out of a connection: a look at it every so often, which costs its data path nothing.
// Driven by connection management (manager.hpp), so also for who sleeps on an event queue.
#pragma once

#include <cstdint>

#include "verbs/manager.hpp"

namespace vma::verbs {

inline constexpr std::uint64_t kNoProbe = UINT64_MAX;
inline constexpr std::uint64_t kLeastTimeout = 1'000;         // us
inline constexpr std::uint64_t kMostTimeout = 86'400'000'000; // us: a day

// Protected by the manager's mutex. Times are ns of now_ns(), numbers those of the send queue (work.hpp).
struct Watch {
    static constexpr unsigned kMarks = 8;

    // What was posted when. Looks are an eighth of the send time-out apart or more, so the oldest is that old.
    struct Mark {
        std::uint64_t when;
        std::uint64_t posted;
    };

    Alarm alarm;
    std::uint64_t keep_alive = 0;   // ns, 0: none
    std::uint64_t send_timeout = 0; // ns, 0: none

    std::uint64_t life = 0;         // operations complete at the last look, of both directions
    std::uint64_t since = 0;        // when that was seen to change
    std::uint64_t probe = kNoProbe; // under way
    std::uint64_t probed = 0;       // when
    Mark marks[kMarks] = {};
    unsigned next_mark = 0;

    std::uint64_t interval() const noexcept;
    void restart(std::uint64_t now) noexcept;
    // Up to which number operations were posted so long ago that they should be complete; 0: none.
    std::uint64_t overdue(std::uint64_t now, std::uint64_t done) const noexcept;
};

} // namespace vma::verbs
