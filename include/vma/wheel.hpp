// SPDX-License-Identifier: BSD-2-Clause
// A hashed timing wheel for what is paced: to add, to remove and to look whether something is due costs the same for
// one timer and for thousands. It reads no clock. Both libraries use it; it is not installed.
#pragma once

#include <algorithm>
#include <cstdint>

namespace vma {

// A part of what waits. It must be off the wheel before it goes.
struct Timer {
    std::uint64_t due = 0; // ns
    Timer *next = nullptr;
    Timer **link = nullptr; // what points to it; nullptr: on no wheel

    bool waits() const noexcept { return link != nullptr; }
};

// Not thread-safe. A timer is told of at the nanosecond it is due for, not at the end of a slot; those that are due in
// the same call come in no order.
class Wheel
{
public:
    static constexpr unsigned kSlots = 256;
    static constexpr unsigned kShift = 14; // ns a slot: 16 us, finer than a thread wakes up

    bool empty() const noexcept { return count_ == 0; }

    // One that is on it already is moved.
    void add(Timer &timer, std::uint64_t due, std::uint64_t now) noexcept
    {
        remove(timer);
        if (empty())
            tick_ = now >> kShift;
        const auto slot = static_cast<unsigned>(std::max(due >> kShift, tick_) % kSlots);
        timer.due = due;
        timer.next = slots_[slot];
        timer.link = &slots_[slot];
        if (timer.next)
            timer.next->link = &timer.next;
        slots_[slot] = &timer;
        ++count_;
    }

    void remove(Timer &timer) noexcept
    {
        if (!timer.waits())
            return;
        *timer.link = timer.next;
        if (timer.next)
            timer.next->link = timer.link;
        timer.link = nullptr;
        --count_;
    }

    // Takes off what is due and calls fire(timer) for each, which may add this one again, and leaves the others alone.
    template <typename Fire> void advance(std::uint64_t now, Fire &&fire) noexcept
    {
        const std::uint64_t until = std::max(now >> kShift, tick_);
        const std::uint64_t from = until - tick_ < kSlots ? tick_ : until - (kSlots - 1);
        tick_ = until;
        Timer *fired = nullptr;
        for (std::uint64_t tick = from; tick <= until && !empty(); ++tick) {
            for (Timer *timer = slots_[tick % kSlots]; timer;) {
                Timer *const following = timer->next;
                if (timer->due <= now) {
                    remove(*timer);
                    timer->next = fired;
                    fired = timer;
                }
                timer = following;
            }
        }
        while (fired) {
            Timer &timer = *fired;
            fired = timer.next;
            fire(timer);
        }
    }

    // When the first one is due; UINT64_MAX: never. As long as the slots between now and then.
    std::uint64_t next() const noexcept
    {
        std::uint64_t first = UINT64_MAX;
        for (std::uint64_t tick = tick_; !empty() && tick < tick_ + kSlots; ++tick) {
            for (const Timer *timer = slots_[tick % kSlots]; timer; timer = timer->next)
                first = std::min(first, timer->due);
            if (first >> kShift <= tick)
                break; // those behind are of later slots, or of later turns
        }
        return first;
    }

private:
    Timer *slots_[kSlots] = {};
    std::uint64_t tick_ = 0; // of the last look
    std::uint64_t count_ = 0;
};

} // namespace vma
