// SPDX-License-Identifier: BSD-2-Clause
// Whose slot comes next. What one peer published before something else is consumed before it, on whichever of the
// queue's endpoints it came: the earliest slot of all is the next one, if its stamp is from before a look at all
// endpoints. Then what its sender knew of was there when that look began.
#include <algorithm>
#include <utility>

#include "local/msg/arrival.hpp"

namespace vma::local {

namespace {

struct IsLater {
    bool operator()(const Queue::Rung &a, const Queue::Rung &b) const noexcept { return a.stamp > b.stamp; }
};

} // namespace

void Queue::push_rung(Endpoint &endpoint) noexcept
{
    if (endpoint.is_rung)
        return;
    endpoint.is_rung = true;
    rung[rung_count++] = {stamp_of(endpoint), &endpoint};
    std::push_heap(rung.get(), rung.get() + rung_count, IsLater());
}

void Queue::pop_rung(Endpoint &endpoint) noexcept
{
    endpoint.is_rung = false;
    Rung *const end = rung.get() + rung_count--;
    if (rung[0].endpoint == &endpoint) [[likely]] {
        std::pop_heap(rung.get(), end, IsLater());
        return;
    }
    *std::find_if(rung.get(), end, [&endpoint](const Rung &entry) { return entry.endpoint == &endpoint; }) = end[-1];
    std::make_heap(rung.get(), end - 1, IsLater());
}

// Whatever list it is on.
void Queue::take_out(Endpoint &endpoint) noexcept
{
    for (Endpoint **at = &passed; *at; at = &(*at)->passed_next) {
        if (*at == &endpoint) {
            *at = endpoint.passed_next;
            return;
        }
    }
    if (endpoint.is_rung)
        pop_rung(endpoint);
}

// Stamps cost the sender some nanoseconds: a queue with one endpoint doesn't want them. What is published without one,
// because its sender has not seen yet that it is wanted, is earlier than what any other endpoint's peer can know of.
void Queue::order(bool wanted) noexcept
{
    for (std::uint32_t bit = 0; bit < by_bit_size; ++bit) {
        if (by_bit[bit])
            by_bit[bit]->receiver.slots.ask_for_stamps(wanted ? clock : StampClock::none);
    }
}

void Queue::answer(Endpoint &endpoint) noexcept
{
    if (endpoint.attention.load(std::memory_order_relaxed)) [[unlikely]]
        attend(endpoint);
    if (!endpoint.is_active)
        endpoint.rings_often = rings_often(endpoint.bit);
    if (has_slot(endpoint))
        push_rung(endpoint);
    else
        settle(endpoint);
}

void Queue::answer_doorbell() noexcept
{
    doorbell.collect([this](std::uint32_t bit) {
        if (Endpoint *const endpoint = bit < by_bit_size ? by_bit[bit] : nullptr)
            answer(*endpoint);
        else
            inlets.rung(bit);
    });
    guests.collect([this](std::uint32_t bit) {
        if (Endpoint *const endpoint = by_bit[bit])
            answer(*endpoint);
    });
}

// False: nothing is there. True: what was published before the horizon is in the heap, each endpoint with its next
// slot.
bool Queue::look() noexcept
{
    const auto due = [this](const Endpoint *endpoint) { return is_due(*endpoint); };
    if (!rung_count && !rung_for() && std::none_of(active, active + active_count, due))
        return false;
    horizon = receivers > 1 ? stamp_before_reading(clock) : kNoHorizon;
    for (unsigned i = 0; i < active_count; ++i) {
        if (is_due(*active[i]))
            push_rung(*active[i]);
    }
    if (rung_for())
        answer_doorbell();
    return true;
}

// The second look is later than what the first has seen: whose slot claims to be later still has no turn to wait for.
Endpoint *Queue::earliest() noexcept
{
    for (int looks = 0; looks < 2 && (!rung_count || rung[0].stamp >= horizon); ++looks) {
        if (!look())
            return nullptr;
    }
    return rung_count ? rung[0].endpoint : nullptr;
}

} // namespace vma::local
