// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/transport/idle_streams.hpp"
#include "compat/src/engine/engine.hpp"

#include <poll.h>

#include <algorithm>

#include "compat/src/base/probes.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

namespace {

constexpr std::uint32_t kMostLookMs = 2000;

std::uint32_t looks_until_idle()
{
    return (config::params().idle_msec + idle_look_ms() - 1) / idle_look_ms();
}

// Nothing has gone either way for so long, by the ring or beside it, and nothing is left to do or to read.
bool is_idle(Stream &s)
{
    IdleMarks &marks = s.idle;
    const std::uint64_t moved = s.tx.position + s.tx.kernel_bytes.load(std::memory_order_relaxed) +
                                s.rx.written.load(std::memory_order_relaxed) +
                                s.rx.kernel_bytes.load(std::memory_order_relaxed);
    if (moved != marks.moved) {
        marks.moved = moved;
        marks.still = 0;
        return false;
    }
    marks.still = std::min(marks.still + 1, looks_until_idle());
    return marks.still == looks_until_idle() && !has_input(s) && s.unread.load(std::memory_order_relaxed) == nullptr &&
           s.tx.resend_from.load(std::memory_order_relaxed) == kNone &&
           s.tx.return_at.load(std::memory_order_relaxed) == kNone && !s.rx.returning.load(std::memory_order_relaxed) &&
           s.pending_error.load(std::memory_order_relaxed) == 0;
}

// Something of the kernel's is to be read, or an end: an edge-triggered set would tell it once more.
bool kernel_has_news(const Stream &s)
{
    pollfd p = {s.any_fd.load(std::memory_order_relaxed), POLLIN | POLLPRI | POLLRDHUP, 0};
    return libc::uncancelled::poll_now(&p, 1) != 0;
}

} // namespace

std::uint32_t idle_look_ms()
{
    return std::min(kMostLookMs, config::params().idle_msec);
}

void IdleStreams::look_at(Stream &s)
{
    const bool idle = is_idle(s); // which counts
    if (idle && count_ < kMostInTurn && engine_device().users > config::params().idle_streams)
        found_[count_++] = &s;
}

void IdleStreams::look_at_shut(Stream &s)
{
    if (count_ < kMostInTurn)
        found_[count_++] = &s;
}

// The socket may be another one's by now: that one goes back, and comes again.
void IdleStreams::let_go()
{
    for (std::size_t i = 0; i < count_; ++i) {
        Stream &s = *found_[i];
        if (!offloaded(s) || !has_endpoint(s) || !transport(s).spans)
            continue;
        if (is_shut(s)) {
            return_one(s, Heir::kLibrary);
            continue;
        }
        if (kernel_has_news(s))
            continue;
        char name[kNameMax];
        probe::fallback(s.any_fd.load(std::memory_order_relaxed), "idle", true);
        VMA_LOG(kDetails, "%s: back to the kernel: idle, and more than VMA_IDLE_STREAMS=%u are accelerated",
                connection_name(s, name), config::params().idle_streams);
        return_one(s, Heir::kLibrary);
        s.let_go = true;
    }
    count_ = 0;
}

} // namespace vma::sock
