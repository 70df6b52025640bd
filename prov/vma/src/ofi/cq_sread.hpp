// SPDX-License-Identifier: BSD-2-Clause
// fi_cq_sread() and fi_cq_sreadfrom(): reading and sleeping by turns until there is enough, the same for all devices.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <rdma/fi_errno.h>

#include "ofi/cq.hpp"
#include "ofi/domain.hpp"

namespace vma::ofi {

using SleepClock = std::chrono::steady_clock;

// Milliseconds that poll() may sleep. Once a second everything is looked at, in case somebody has taken a wake-up that
// was for us.
inline int nap_length(int timeout, SleepClock::time_point end) noexcept
{
    constexpr int kLongest = 1000;
    if (timeout < 0)
        return kLongest;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - SleepClock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, kLongest));
}

// `read` is the device's fi_cq_readfrom(), `sleep_once` sleeps for so many milliseconds at most, and gives false where
// the program shall have an answer now (fi_cq_signal).
template <fi_cq_format Format, typename Read, typename Sleep>
ssize_t cq_sread(Cq &queue, void *buffer, std::size_t count, fi_addr_t *sources, const void *cond, int timeout,
                 Read read, Sleep sleep_once) noexcept
{
    if (queue.domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    std::size_t wanted = 1;
    if (cond != nullptr && queue.wait_cond == FI_CQ_COND_THRESHOLD)
        wanted = std::clamp<std::size_t>(*static_cast<const std::size_t *>(cond), 1, std::max<std::size_t>(count, 1));
    const SleepClock::time_point end = SleepClock::now() + std::chrono::milliseconds(std::max(timeout, 0));
    std::size_t taken = 0;
    for (bool last = false;;) {
        const ssize_t got = read(&queue.fid, static_cast<std::byte *>(buffer) + taken * entry_size(Format),
                                 count - taken, sources != nullptr ? sources + taken : nullptr);
        if (got > 0)
            taken += static_cast<std::size_t>(got);
        if (taken >= wanted || last || (got < 0 && got != -FI_EAGAIN) || (got == 0 && count == 0))
            return taken > 0 ? static_cast<ssize_t>(taken) : got;
        const int nap = nap_length(timeout, end);
        last = nap == 0 || !sleep_once(nap);
    }
}

} // namespace vma::ofi
