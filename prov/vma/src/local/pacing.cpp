// SPDX-License-Identifier: BSD-2-Clause
// Rate limits of the local device: what is not due rests on its queue's timing wheel until a read of the queue finds
// that it is. Who sleeps meanwhile is woken by one timer descriptor a queue. doc/pacing.md
#include "local/pacing.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "core/clock.hpp"
#include "core/kernel.hpp"
#include "local/msg/sender.hpp"
#include "local/queue.hpp"
#include "ofi/rate_limit.hpp"

namespace vma::local {

// ---- the sender's side, with its lock held --------------------------------------------------------------------------

bool Sender::is_due(std::uint64_t bytes) noexcept
{
    if (!bytes)
        return true;
    const std::uint64_t now = core::monotonic_ns();
    const std::uint64_t due = pacer_.due(now, bytes);
    held_until_ = due == now ? 0 : due;
    return due == now;
}

std::uint64_t Sender::longest_piece() const noexcept
{
    return paced_ ? std::max<std::uint64_t>(pacer_.piece(), kSlotPayload) : UINT64_MAX;
}

void Sender::set_limit(const fi_vma_rate_limit &limit) noexcept
{
    const core::SpinGuard guard(lock_);
    pacer_.set(core::monotonic_ns(), limit.rate, limit.max_burst, limit.typical_packet);
    paced_ = pacer_.limited();
    held_until_ = 0;
    if (!connected())
        return;
    advance(false); // also who was refused may try again: at the new rate it may be due
    watch_progress();
}

fi_vma_rate_limit Sender::limit() noexcept
{
    const core::SpinGuard guard(lock_);
    return ofi::limit_of(pacer_);
}

std::uint64_t Sender::due_now() noexcept
{
    const core::SpinGuard guard(lock_);
    return held_until_;
}

// ---- the queue's side, with its lock held ---------------------------------------------------------------------------

int Queue::open_timer() noexcept
{
    if (paced.timer || untimed)
        return 0;
    core::UniqueFd timer =
        core::make_fd([] { return core::kernel::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK); });
    if (!timer)
        return -errno;
    if (const int error = open_wait_set())
        return error;
    epoll_event interest{};
    interest.events = EPOLLIN;
    if (core::kernel::epoll_ctl(wait_set.get(), EPOLL_CTL_ADD, timer.get(), &interest) != 0)
        return -errno;
    paced.timer = std::move(timer);
    return 0;
}

// Arms the timer for what is due first, or makes it unreadable.
void Queue::set_timer() noexcept
{
    const std::uint64_t due = paced.wheel.next();
    if (!paced.timer || (due == UINT64_MAX && paced.timer_set == 0))
        return;
    constexpr std::uint64_t kSecond = 1'000'000'000;
    itimerspec when{};
    if (due != UINT64_MAX) {
        const std::uint64_t some = std::max<std::uint64_t>(due, 1); // 0 would switch it off
        when.it_value = {static_cast<time_t>(some / kSecond), static_cast<long>(some % kSecond)};
    }
    core::kernel::timerfd_settime(paced.timer.get(), TFD_TIMER_ABSTIME, &when, nullptr);
    paced.timer_set = due == UINT64_MAX ? 0 : due;
}

void Queue::wait_until(PacedTimer &timer, std::uint64_t due) noexcept
{
    paced.wheel.add(timer, due, core::monotonic_ns());
    if (armed)
        set_timer();
}

// What is due is looked at from now on like all that waits for its peer.
void Queue::collect_due() noexcept
{
    paced.wheel.advance(core::monotonic_ns(), [this](Timer &timer) noexcept {
        Sender *const sender = static_cast<PacedTimer &>(timer).sender;
        if (sender)
            enlist(*sender);
        else
            paced.refused_is_due = true;
    });
}

} // namespace vma::local
