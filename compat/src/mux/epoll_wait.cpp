// SPDX-License-Identifier: BSD-2-Clause
// epoll_wait and its kin. A set without taken entries waits in the kernel as if we weren't there; else the wait looks
// at the ready list, and in turn at the kernel, spins for a while, and then sleeps in the kernel until either side has
// news.
#include <errno.h>
#include <pthread.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <utility>

#include "compat/src/base/clock.hpp"
#include "compat/src/base/fence.hpp"
#include "compat/src/base/spin_mask.hpp"
#include "compat/src/base/spin_time.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/fail.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/mux/aware_wait.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/kernel_wait.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/stats/wait_count.hpp"
#include "compat/src/wait/thread_record.hpp"

namespace vma::mux {

namespace {

using libc::fail;

constexpr int kMostEvents = INT_MAX / static_cast<int>(sizeof(epoll_event)); // as the kernel has it

// A one-shot entry fired in the kernel with our tag for data. False: the event isn't to be reported.
bool untag(Set &set, epoll_event &event)
{
    const std::uint64_t tag = event.data.u64;
    Entry &entry = *reinterpret_cast<Entry *>(place_of_tag(tag));
    {
        LockGuard guard(set.ready_lock);
        if (entry.set.load(std::memory_order_relaxed) != &set)
            return false;
        if (entry.place.load(std::memory_order_relaxed) == Place::kTagged &&
            (entry.generation & kTagGenerations) == (tag & kTagGenerations)) {
            event.data = entry.data;
            entry.disabled = true;
            return true;
        }
    }
    requeue(set, entry); // taken over since it fired
    return false;
}

constexpr int kNoNews = -1;

// Leaves the program's own events. `side`: behind so many of them the side set has news, or kNoNews.
int strip(Set &set, epoll_event *events, int n, int &side)
{
    int kept = 0;
    for (int i = 0; i < n; ++i) {
        const std::uint64_t data = events[i].data.u64;
        if (data == side_marker(set)) {
            side = kept;
            continue;
        }
        epoll_event event = events[i];
        if (g_mux.entries.holds(place_of_tag(data)) && !untag(set, event))
            continue;
        events[kept++] = event;
    }
    return kept;
}

stats::Mux &record_of(Set &set)
{
    stats::Mux *const record = set.record.load(std::memory_order_acquire);
    return record != nullptr ? *record : make_record(set);
}

// One call on a set with taken entries.
class Wait
{
public:
    Wait(Set &set, Rest &rest, int epfd, epoll_event *events, int max, Deadline &deadline, const sigset_t *mask)
        : set_(set), rest_(rest), epfd_(epfd), events_(events), max_(max), deadline_(deadline), mask_(mask)
    {
    }

    // Before it is waited. False: there is nothing yet.
    bool look_first(int &n)
    {
        const bool due = kernel_.due_at_call(mixed());
        ours_first_ = kernel_had_all();
        const bool asked = due && !ours_first_;
        n = look(asked);
        if (n == 0 && deadline_.immediate() && !sure_) {
            poll_engine(set_, sock::engine_drain);
            n = report();
        }
        if (n == 0 && !deadline_.immediate())
            return false;
        n = end(n == 0 && !asked ? look_at_both() : n);
        return true;
    }

    int wait_longer()
    {
        const config::Params &params = config::params();
        deadline_.start();
        SpinTime time = goes_by_habit(params.select_poll_learns)
                            ? SpinTime(set_.spins, rest_, deadline_.end())
                            : SpinTime(params.select_poll * kNanosPerMicro, deadline_.end(),
                                       gives_way(params.select_poll_gives_way) ? &rest_ : nullptr);
        int n = time.spins() ? spin(time) : 0;
        if (n == 0) {
            while (n == 0)
                n = sleep();
            time.slept();
        }
        return end(n == kTimedOut ? 0 : n);
    }

private:
    int end(int n)
    {
        const libc::KeepErrno keep;
        relay(set_);
        return count_.done(n);
    }

    static constexpr int kTimedOut = INT_MIN;

    bool mixed() const { return is_mixed(set_); }

    // The kernel's events left no room for ours in the last call: those go first in this one.
    bool kernel_had_all()
    {
        std::atomic<bool> &filled = set_.kernel_share.filled;
        if (!filled.load(std::memory_order_relaxed)) [[likely]]
            return false;
        filled.store(false, std::memory_order_relaxed);
        return set_.ready.load(std::memory_order_relaxed) != 0;
    }

    // The number of the program's own. `side`: as strip().
    int kernel_events(int n, int &side)
    {
        side = kNoNews;
        const int kept = n > 0 ? strip(set_, events_, n, side) : 0;
        count_.by_kernel(kept);
        if (side != kNoNews) {
            end_storm(set_);
            drain_side(set_);
        }
        return kept;
    }

    // `news`: it had something, be it of what is on our list only. `listed`: so much was there before it was asked.
    int look_at_kernel(bool &news, unsigned &listed)
    {
        int side = kNoNews;
        news = false;
        listed = 0;
        const int number = live_number(set_, epfd_);
        if (number < 0)
            return 0;
        round_ = begin_round(set_);
        set_.kernel_first.store(false, std::memory_order_seq_cst);
        listed = set_.ready.load(std::memory_order_acquire);
        sock::fence_after_exchange(); // the kernel looks at its list without a lock
        const int n = libc::real.epoll_wait(number, events_, max_, 0);
        if (n < 0 || n == max_) // not asked, or it may have more
            set_.kernel_first.store(true, std::memory_order_relaxed);
        news = n > 0;
        return n < 0 ? n : kernel_events(n, side);
    }

    // Of the list no more than the first `most`.
    [[gnu::always_inline]] int harvest_after(int n, unsigned most = UINT_MAX, Heeds heeds = Heeds::kNothing)
    {
        const unsigned found = std::min(set_.ready.load(std::memory_order_acquire), most);
        if (n < 0 || n == max_ || found == 0)
            return n;
        const auto room = static_cast<unsigned>(max_ - n);
        if (!libc::can_update(events_ + n, std::min(found, room) * sizeof *events_))
            return n != 0 ? n : fail(EFAULT); // the events stay
        return n + harvest(set_, events_ + n, max_ - n, found, n > 0 ? round_ : 0, heeds);
    }

    // The same, for the place in the kernel's list where it has the engine's news.
    int harvest_at(int place, int n)
    {
        const int all = harvest_after(n);
        if (all > n && place < n)
            std::rotate(events_ + place, events_ + n, events_ + all);
        return all;
    }

    // What is on the list, and before it what the kernel has: that may have come earlier. Where the kernel has
    // something, what came by the engine before is taken in, also where another thread is at it: it may have taken that
    // off the queue, and have told nobody yet. Where it has nothing for the program, what has come since it was asked,
    // and is on the list by another thread, be it of an entry that was there already, may come behind something of the
    // kernel's: it is asked again.
    int look_at_both()
    {
        for (unsigned looks = 0; looks < kMostLooks; ++looks) {
            const bool was_mixed = mixed();
            unsigned listed = 0;
            bool news = false;
            const int n = look_at_kernel(news, listed);
            if (n != 0)
                return n > 0 ? with_what_came_before(n) : n;
            if (news || awaits_move(set_)) [[unlikely]]
                continue;
            const int found = harvest_after(0, listed, was_mixed ? Heeds::kMarks : Heeds::kNothing);
            if (found != 0 || !was_mixed || !set_.kernel_first.load(std::memory_order_acquire)) [[likely]]
                return found;
        }
        return harvest_after(0); // news keep coming
    }

    // Behind the kernel's events.
    int with_what_came_before(int n)
    {
        if (n == max_) [[unlikely]]
            set_.kernel_share.filled.store(true, std::memory_order_relaxed);
        drain_rings(set_);
        return harvest_after(n);
    }

    bool kernel_may_be_earlier() const
    {
        const bool first =
            set_.kernel_first.load(std::memory_order_acquire) || set_.always_asks.load(std::memory_order_relaxed);
        return (first && mixed()) || set_.kernel_waits.load(std::memory_order_relaxed) != 0;
    }

    // After a look at the engine: what is on the list.
    [[gnu::always_inline]] int report()
    {
        if (set_.ready.load(std::memory_order_acquire) == 0)
            return 0;
        if (ours_first_)
            return harvest_after(0);
        if (kernel_may_be_earlier())
            return report_with_kernel();
        const int n = harvest_after(0, UINT_MAX, Heeds::kKernel);
        return n == 0 && kernel_may_be_earlier() ? look_at_both() : n;
    }

    // The kernel is asked only if there is something to report.
    int report_with_kernel()
    {
        if (!list_ready(set_))
            return 0; // what has been put on it meanwhile waits: the kernel has not been asked since
        const std::uint32_t waits = set_.kernel_waits.load(std::memory_order_relaxed);
        if (waits != 0)
            set_.kernel_waits.store(waits - 1, std::memory_order_relaxed);
        return look_at_both();
    }

    int look(bool kernel_first)
    {
        sure_ = poll_rings() == 0;
        if (!kernel_first)
            return report();
        const int n = look_at_both();
        kernel_.done();
        return n;
    }

    // What one ring has may have come after what another has, which was looked at before, or another thread is at.
    unsigned poll_rings()
    {
        const unsigned found = poll_engine(set_);
        const sock::RingMask rings = set_.rings.load(std::memory_order_relaxed);
        const bool several = (rings & (rings - 1)) != 0;
        if (found != 0 && (several || set_.tells_ends.load(std::memory_order_relaxed))) [[unlikely]]
            drain_rings(set_); // likewise an END, which comes last
        return found;
    }

    bool interrupted() const { return libc::signal_counts().all != handlers_; }

    int spin(SpinTime &time)
    {
        SpinMask mask(mask_);
        for (;;) {
            const int n = look(kernel_.due_in_spin());
            if (n > 0)
                time.hit();
            if (n != 0)
                return n;
            if (interrupted())
                return fail(EINTR);
            if (time.over())
                return 0;
            ::pthread_testcancel();
        }
    }

    // Sleeps until something happens. 0: look again.
    int sleep()
    {
        SetSleep sleep(set_);
        if (!sleep.begin())
            return report();
        const sock::RingMask rings =
            sock::open_rings(set_.rings.load(std::memory_order_acquire)); // more come with a kick
        watch_engine(set_, rings);
        const bool stays = interrupted();
        if (stays || !sleep.arm(rings)) {
            sleep.end();
            poll_engine(set_, sock::engine_drain); // who is taking what is there may need this processor
            poll_rings();
            const int n = report();
            return n == 0 && stays ? fail(EINTR) : n;
        }
        timespec left = {};
        const timespec *const timeout = deadline_.left(left);
        const int number = live_number(set_, epfd_);
        round_ = begin_round(set_);
        count_.asleep();
        const int slept = number >= 0 ? kernel_wait(number, events_, max_, timeout, mask_)
                                      : libc::real.ppoll(nullptr, 0, timeout, mask_); // all its descriptors are closed
        const int error = errno;
        count_.awake();
        sleep.end();
        int side = kNoNews;
        int n = kernel_events(slept, side);
        // Behind events of the kernel also where the engine's mark is not among them: another thread may have taken
        // what it stood for, and be at it still.
        if (n > 0)
            drain_rings(set_);
        else
            poll_rings();
        n = n == 0 ? report() : harvest_at(side != kNoNews ? side : n, n);
        if (n != 0)
            return n;
        if (slept < 0)
            return fail(error);
        if (interrupted())
            return fail(EINTR);
        return slept == 0 && deadline_.left_ns() == 0 ? kTimedOut : 0;
    }

    Set &set_;
    Rest &rest_; // this thread's
    const int epfd_;
    epoll_event *const events_;
    const int max_;
    Deadline &deadline_;
    const sigset_t *const mask_;
    KernelTurn kernel_{config::params().select_poll_os_ratio, config::params().select_skip_os, set_.kernel_share};
    WaitCount count_{record_of(set_)};
    const std::uint32_t handlers_ = libc::signal_counts().all;
    bool ours_first_ = false; // the kernel had all of the last call
    bool sure_ = false;       // nothing was in the engine's queue at the last look
    std::uint64_t round_ = 0; // of the last look at the kernel
};

// What the kernel found for a thread that knew of no entries in user space. 0: nothing of the program's.
int after_kernel_only_wait(Set &set, ThreadRecord &record, epoll_event *events, int n)
{
    const libc::KeepErrno keep;
    AwareWait aware(record, set);
    int side = kNoNews;
    if (n > 0)
        n = strip(set, events, n, side);
    if (side != kNoNews) {
        end_storm(set);
        if (drain_side(set))
            poll_engine(set);
        relay(set);
    }
    return n;
}

int aware_wait(Set &set, ThreadRecord &record, int epfd, epoll_event *events, int max, Deadline &deadline,
               const sigset_t *mask)
{
    Wait wait(set, record.rest, epfd, events, max, deadline, mask);
    ::pthread_testcancel();
    std::optional<libc::Stretch> stretch(
        std::in_place); // a handler finds the thread in no wait, or in one that is undone
    AwareWait aware(record, set);
    int n = 0;
    if (wait.look_first(n))
        return n;
    const libc::WhenLeft<AwareWait, &AwareWait::leave> left(aware);
    stretch.reset();
    n = wait.wait_longer();
    stretch.emplace();
    return n;
}

// What epoll_wait() does once it is known that the set is more than a kernel set.
int tracked_wait(Set &set, ThreadRecord &record, int epfd, epoll_event *events, int max, const timespec *timeout,
                 const sigset_t *mask)
{
    Deadline deadline(timeout);
    timespec left = {};
    for (const timespec *now_left = timeout;; now_left = deadline.left(left)) {
        record.kernel_only_wait.store(&set, std::memory_order_relaxed);
        order_record();
        if (is_taken(set)) {
            record.kernel_only_wait.store(nullptr, std::memory_order_release);
            if (max <= 0 || max > kMostEvents)
                return fail(EINVAL);
            return aware_wait(set, record, epfd, events, max, deadline, mask);
        }
        if (timeout != nullptr && !deadline.immediate())
            deadline.start();
        WaitCount count(record_of(set));
        count.asleep();
        int n = kernel_wait(epfd, events, max, now_left, mask);
        count.awake();
        record.kernel_only_wait.store(nullptr, std::memory_order_release);
        const bool stripped = n > 0 && set.filter.load(std::memory_order_relaxed);
        if (set.filter.load(std::memory_order_relaxed))
            n = after_kernel_only_wait(set, record, events, n);
        count.by_kernel(n);
        if (n != 0 || !stripped)
            return count.done(n);
    }
}

// A wait in the kernel alone, while the set holds nothing of ours; `wait` is the kernel call. False: it does, or it has
// come to do so meanwhile, and nothing was found.
template <typename Wait> bool untracked_wait(Set &set, ThreadRecord &record, epoll_event *events, int &n, Wait wait)
{
    record.kernel_only_wait.store(&set, std::memory_order_relaxed);
    order_record();
    if (set.tracked.load(std::memory_order_relaxed) != 0) {
        record.kernel_only_wait.store(nullptr, std::memory_order_release);
        return false;
    }
    n = wait();
    record.kernel_only_wait.store(nullptr, std::memory_order_release);
    if (!set.filter.load(std::memory_order_relaxed)) [[likely]]
        return true;
    const bool stripped = n > 0;
    n = after_kernel_only_wait(set, record, events, n);
    return n != 0 || !stripped;
}

} // namespace

int epoll_wait(int epfd, epoll_event *events, int max, const timespec *timeout, const sigset_t *mask)
{
    if (!valid_timeout(timeout))
        return fail(EINVAL);
    Set *const set = set_of(epfd);
    ThreadRecord *const record = set != nullptr ? thread_record() : nullptr;
    if (record == nullptr)
        return kernel_wait(epfd, events, max, timeout, mask);
    return tracked_wait(*set, *record, epfd, events, max, timeout, mask);
}

int epoll_wait_ms(int epfd, epoll_event *events, int max, int milliseconds, const sigset_t *mask)
{
    const auto wait = [=] {
        return mask == nullptr ? libc::real.epoll_wait(epfd, events, max, milliseconds)
                               : libc::real.epoll_pwait(epfd, events, max, milliseconds, mask);
    };
    Set *const set = set_of(epfd);
    ThreadRecord *const record = set != nullptr ? thread_record() : nullptr;
    if (record == nullptr)
        return wait();
    int n = 0;
    if (untracked_wait(*set, *record, events, n, wait)) [[likely]]
        return n;
    const timespec timeout = to_timespec(milliseconds * kNanosPerMilli);
    return tracked_wait(*set, *record, epfd, events, max, milliseconds < 0 ? nullptr : &timeout, mask);
}

bool has_news(int epfd)
{
    const Set *const set = set_of(epfd);
    return set != nullptr && set->ready.load(std::memory_order_relaxed) != 0;
}

} // namespace vma::mux
