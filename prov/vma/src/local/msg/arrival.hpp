// SPDX-License-Identifier: BSD-2-Clause
// What a completion queue asks of an endpoint for each slot that it consumes, inlined: when its next one came, whether
// it may go on, and up to when it is its turn. arrival.cpp tells how the order is found.
#pragma once

#include <algorithm>
#include <utility>

#include "local/msg/endpoint.hpp"
#include "local/queue.hpp"

namespace vma::local {

// A slot is written when the one that had its place before is consumed, and no earlier, whatever it says: whose slots
// claim to be the earliest of all doesn't shut out the others.
inline std::uint64_t Queue::stamp_of(const Endpoint &endpoint) noexcept
{
    return std::max(endpoint.receiver.slots.stamp(), endpoint.not_before);
}

inline void Queue::note_consumed(Endpoint &endpoint, unsigned slots) noexcept
{
    endpoint.consumed += slots;
    if (endpoint.consumed < kSlotCount) [[likely]]
        return;
    endpoint.consumed = 0;
    endpoint.not_before = std::exchange(endpoint.lap, stamp_now(clock));
}

inline bool Queue::has_slot(const Endpoint &endpoint) noexcept
{
    return endpoint.receiver.slots.ready() && endpoint.receiver.open.load(std::memory_order_acquire) &&
           !endpoint.stalled.load(std::memory_order_relaxed);
}

inline bool Queue::can_go_on(const Endpoint &endpoint) const noexcept
{
    return endpoint.receiver.open.load(std::memory_order_acquire) && endpoint.passed_at != reads &&
           !endpoint.stalled.load(std::memory_order_relaxed);
}

inline bool Queue::is_due(const Endpoint &endpoint) const noexcept
{
    return has_slot(endpoint) && endpoint.passed_at != reads;
}

// What an endpoint owes beside its slots.
inline void Queue::settle(Endpoint &endpoint) noexcept
{
    give_back(endpoint);
    if (endpoint.receiver.ended && !endpoint.receiver.slots.ready()) [[unlikely]]
        endpoint.receiver.flush(FI_ECANCELED);
}

// The last stamp that a slot may have whose turn it is before those that have been seen, and before any that has not
// been.
inline std::uint64_t Queue::latest_in_turn() const noexcept
{
    return rung_count ? std::min(rung[0].stamp, horizon - 1) : horizon - 1;
}

} // namespace vma::local
