// SPDX-License-Identifier: BSD-2-Clause
// When a spinning wait stops: after the time that the user has said, or that its habit allows; at its deadline; where
// others want the processor. Who spins for long lets others run in each turn: they may be whom it waits for.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "compat/src/base/clock.hpp"
#include "compat/src/base/oversubscription.hpp"
#include "compat/src/base/spin_habit.hpp"

namespace vma::mux {

// `unsaid`: the user has said nothing of how long.
inline bool goes_by_habit(bool unsaid)
{
    return unsaid && !sock::g_process.oversubscription.devices_are_polled.load(std::memory_order_relaxed);
}

// A wait for ever gives way to others where `by_profile` says so, no filter refuses to sleep, and no device is polled:
// there the kernel's threads that bring its frames take the time.
inline bool gives_way(bool by_profile)
{
    return by_profile && !turns_are_refused() &&
           !sock::g_process.oversubscription.devices_are_polled.load(std::memory_order_relaxed) &&
           !sock::g_process.oversubscription.turns_are_for_ports.load(std::memory_order_relaxed);
}

class SpinTime
{
public:
    // By the user's word: ns, less than 0 for ever, 0 one look. `deadline`: ns, kForever when there is none. `rest`, of
    // one for ever: it ends all the same where others take too much of this thread's time, and rests then.
    SpinTime(std::int64_t length, std::int64_t deadline, Rest *rest = nullptr)
        : start_(now_ns()), last_(start_), end_(deadline), rest_(rest), limited_(length >= 0)
    {
        if (limited_)
            end_ = oversubscribed(start_) ? start_ : std::min(end_, start_ + length);
        else if (rest_ != nullptr && start_ < rest_->until)
            end_ = start_;
    }
    // By what it has brought lately.
    SpinTime(SpinHabit &habit, Rest &rest, std::int64_t deadline)
        : start_(now_ns()), last_(start_), end_(start_), habit_(&habit), rest_(&rest)
    {
        if (!oversubscribed(start_) && start_ >= rest.until && habit.is_due())
            end_ = std::min(deadline, start_ + SpinHabit::kMostNs);
        polite_ = habit.by_turns();
        polite_after_ = polite_ ? 0 : kTurnsAfter;
    }

    bool spins() const { return end_ != start_; }
    bool polite() const { return polite_; }

    bool over() // a look at the clock costs more than a look at the queue: one every kStride calls
    {
        constexpr std::uint32_t kStride = 32;
        if (!polite_ && ++calls_ % kStride != 0 && end_ != start_)
            return false;
        return habit_ != nullptr ? over_by_habit() : over_by_word();
    }

    void hit() // it has found something
    {
        if (habit_ != nullptr && spins())
            habit_->hit(others_ran_);
        else if (polite_ && gives_way()) // what came was perhaps made by who had the processor for long
            lost_too_much(now_ns());
    }

    // It has slept until now.
    void slept() const
    {
        if (habit_ == nullptr)
            return;
        const std::int64_t took = now_ns() - start_;
        if (!spins())
            habit_->slept(took);
        else if (!gives_turns(*rest_, start_))
            habit_->slept_after_spin(took);
    }

private:
    static constexpr std::int64_t kPoliteAfter = 20'000; // ns
    static constexpr std::int64_t kTurnsAfter = 5'000;   // the same, by habit
    static constexpr std::int64_t kEmptyTurn = 1'500;    // ns: in less nobody else can have run

    bool gives_way() const { return habit_ == nullptr && !limited_ && rest_ != nullptr && !turns_are_refused(); }

    bool over_by_word()
    {
        const std::int64_t now = now_ns();
        if (polite_ && yield_finds_oversubscription(now) && limited_)
            return true;
        if (gives_way() && lost_too_much(now))
            return true;
        polite_ = now - start_ > kPoliteAfter;
        return now >= end_;
    }

    bool over_by_habit()
    {
        const std::int64_t now = now_ns();
        if (end_ == start_ || lost_too_much(now))
            return true;
        if (now >= end_) {
            habit_->missed();
            return true;
        }
        polite_ = now - start_ >= polite_after_;
        others_ran_ = false;
        if (polite_ && gives_turns(*rest_, now) && !oversubscribed(now)) {
            ::sched_yield();
            last_ = now_ns();
            others_ran_ = last_ - now >= kEmptyTurn;
            note_turn(*rest_, now, last_);
        }
        return false;
    }

    // A gap between two looks at the clock: perhaps somebody else had the processor.
    bool lost_too_much(std::int64_t now)
    {
        const std::int64_t gap = now - last_;
        last_ = now;
        return gap_is_too_much(*rest_, now, gap, others_have_run);
    }

    const std::int64_t start_;
    std::int64_t last_;
    std::int64_t end_;
    SpinHabit *const habit_ = nullptr;
    Rest *const rest_ = nullptr;
    const bool limited_ = true;
    std::uint32_t calls_ = 0;
    std::int64_t polite_after_ = kTurnsAfter;
    bool polite_ = false;
    bool others_ran_ = false; // in the last turn
};

} // namespace vma::mux
