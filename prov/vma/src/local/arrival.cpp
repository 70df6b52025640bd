// SPDX-License-Identifier: BSD-2-Clause
// Whose slot comes next. What one peer published before something else is consumed before it, on whichever of the queue's endpoints it
// came: the earliest slot of all is the next one, after a look at all others that began when it was there.
#include <algorithm>
#include <utility>

#include "local/endpoint.hpp"
#include "local/queue.hpp"

namespace vma::local {

namespace {

bool later(const Queue::Rung &a, const Queue::Rung &b) noexcept
{
    return a.stamp > b.stamp;
}

} // namespace

// A slot is written when the one that had its place before is consumed, and no earlier, whatever it says: whose slots claim to be the
// earliest of all doesn't shut out the others.
std::uint64_t Queue::stamp_of(const Endpoint &endpoint) noexcept
{
    return std::max(endpoint.receiver.slots.stamp(), endpoint.not_before);
}

void Queue::note_consumed(Endpoint &endpoint, unsigned slots) noexcept
{
    endpoint.consumed += slots;
    if (endpoint.consumed < kSlotCount)
        return;
    endpoint.consumed = 0;
    endpoint.not_before = std::exchange(endpoint.lap, stamp_now(stamp_clock()));
}

void Queue::push_rung(Endpoint &endpoint) noexcept
{
    if (endpoint.is_rung || endpoint.is_active)
        return;
    endpoint.is_rung = true;
    rung[rung_count++] = {stamp_of(endpoint), &endpoint};
    std::push_heap(rung.get(), rung.get() + rung_count, later);
}

void Queue::pop_rung(Endpoint &endpoint) noexcept
{
    endpoint.is_rung = false;
    Rung *const end = rung.get() + rung_count--;
    if (rung[0].endpoint == &endpoint) [[likely]] {
        std::pop_heap(rung.get(), end, later);
        return;
    }
    *std::find_if(rung.get(), end, [&endpoint](const Rung &entry) { return entry.endpoint == &endpoint; }) = end[-1];
    std::make_heap(rung.get(), end - 1, later);
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

// Stamps cost the sender some nanoseconds: a queue with one endpoint doesn't want them. What is published without one, because its sender
// has not seen yet that it is wanted, is earlier than what any other endpoint's peer can know of.
void Queue::order(bool wanted) noexcept
{
    for (std::uint32_t bit = 0; bit < by_bit_size; ++bit) {
        if (by_bit[bit])
            by_bit[bit]->receiver.slots.ask_for_stamps(wanted ? stamp_clock() : StampClock::none);
    }
}

bool Queue::can_go_on(const Endpoint &endpoint) const noexcept
{
    return endpoint.receiver.open.load(std::memory_order_acquire) && endpoint.passed_at != reads &&
           !endpoint.stalled.load(std::memory_order_relaxed);
}

// What an endpoint owes beside its slots.
void Queue::settle(Endpoint &endpoint) noexcept
{
    give_back(endpoint);
    if (endpoint.receiver.ended && !endpoint.receiver.slots.ready()) [[unlikely]]
        endpoint.receiver.flush(FI_ECANCELED);
}

void Queue::answer(Endpoint &endpoint) noexcept
{
    if (endpoint.attention.load(std::memory_order_relaxed)) [[unlikely]]
        attend(endpoint);
    if (!endpoint.is_active)
        endpoint.rings_often = rings_often(endpoint.bit);
    if (endpoint.receiver.slots.ready() && endpoint.receiver.open.load(std::memory_order_acquire) &&
        !endpoint.stalled.load(std::memory_order_relaxed))
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
}

// Goes round until a round finds nothing earlier: what its sender had published before was there when that round began.
Endpoint *Queue::earliest() noexcept
{
    Endpoint *found = nullptr;
    std::uint64_t stamp = 0;
    for (;;) {
        const Endpoint *const before = found;
        if (doorbell.rung())
            answer_doorbell();
        for (unsigned i = 0; i < active_count; ++i) {
            Endpoint &endpoint = *active[i];
            if (endpoint.receiver.slots.ready() && (!found || stamp_of(endpoint) < stamp) && can_go_on(endpoint)) {
                found = &endpoint;
                stamp = stamp_of(endpoint);
            }
        }
        if (rung_count && (!found || rung[0].stamp < stamp)) {
            found = rung[0].endpoint;
            stamp = rung[0].stamp;
        }
        if (found == before)
            return found;
    }
}

// Something may come before the slot of this endpoint that is next now.
bool Queue::is_overtaken(const Endpoint &endpoint) const noexcept
{
    const std::uint64_t stamp = stamp_of(endpoint);
    if (doorbell.rung() || (rung_count && rung[0].stamp < stamp))
        return true;
    for (unsigned i = 0; i < active_count; ++i) {
        if (active[i] != &endpoint && active[i]->receiver.slots.ready() && stamp_of(*active[i]) < stamp)
            return true;
    }
    return false;
}

} // namespace vma::local
