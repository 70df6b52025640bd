// SPDX-License-Identifier: BSD-2-Clause
// poll() over descriptors of which some are tracked sockets or epoll sets. While none is offloaded the kernel does it
// all, with one descriptor more, through which the thread learns that one became offloaded. Else: look, spin, sleep, as
// in epoll_wait.cpp.
#include "compat/src/mux/poll_wait.hpp"

#include <errno.h>

#include <algorithm>

#include "compat/src/base/spin_mask.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/fail.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/mux/epoll_set.hpp"

namespace vma::mux {

namespace {

using libc::fail;

constexpr std::uint32_t kOut = POLLOUT | POLLWRNORM | POLLWRBAND;
constexpr std::uint32_t kAlways = POLLHUP | POLLERR | POLLNVAL;
constexpr std::int64_t kMutedSleep = std::int64_t{10} * 1000 * 1000; // ns
constexpr nfds_t kExtra = 65; // the engine's descriptors, one a ring, and the thread's own

std::uint32_t bits(short events)
{
    return static_cast<std::uint16_t>(events);
}

short to_short(std::uint32_t events)
{
    return static_cast<short>(events);
}

// The socket or set of `fd`. True: user space has to look at it; else the kernel knows all.
bool source_of(int fd, sock::Socket *&socket, Set *&set)
{
    socket = sock::lookup(fd);
    set = socket == nullptr ? set_of(fd) : nullptr;
    if (set != nullptr && !is_taken(*set))
        set = nullptr;
    return set != nullptr || (socket != nullptr && sock::tells_of_itself(*socket));
}

} // namespace

PollWait::PollWait(ThreadRecord &record, Frame &frame, pollfd *fds, nfds_t count, Style style, Deadline &deadline,
                   const sigset_t *mask)
    : record_(record), frame_(frame), fds_(fds), count_(count), style_(style), deadline_(deadline), mask_(mask),
      counted_(style == Style::kPoll ? stats::header().poll[record.group] : stats::header().select[record.group])
{
}

PollWait::~PollWait()
{
    frame_.release();
}

// Without the destructor. It has taken from the queues what others sleep for.
void PollWait::leave()
{
    frame_.release();
    sock::engine_leave_by_jump(left_);
}

int PollWait::run()
{
    kernel_ = frame_.kernel.at_least(count_ + kExtra);
    looked_ = frame_.looked.at_least(count_);
    if (kernel_ == nullptr || looked_ == nullptr)
        return fail(ENOMEM); // as the kernel, when it has no room for the array
    int n = kAgain;
    while (n == kAgain)
        n = classify() ? aware() : kernel_only();
    const int error = errno;
    sock::engine_leave(left_);
    errno = error;
    return counted_.done(n == kTimedOut ? 0 : n);
}

// ---- what is in the array -------------------------------------------------------------------------------------------

bool PollWait::classify()
{
    frame_.looked_count = 0;
    muted_ = false;
    ends_ = false;
    for (nfds_t i = 0; i < count_; ++i) {
        kernel_[i] = {fds_[i].fd, fds_[i].events, 0};
        sock::Socket *socket = nullptr;
        Set *set = nullptr;
        if (!source_of(fds_[i].fd, socket, set)) {
            if (socket != nullptr && count_ > 1)
                note_poller(*socket, record_);
            continue;
        }
        Looked &looked = looked_[frame_.looked_count++];
        looked = {};
        looked.watcher.notify = notify_frame;
        looked.frame = &frame_;
        looked.socket = socket;
        looked.set = set;
        looked.fd = fds_[i].fd;
        looked.index = static_cast<std::uint32_t>(i);
        looked.interest = bits(fds_[i].events);
        ends_ |= (looked.interest & POLLRDHUP) != 0;
        kernel_[i].events = to_short(kernel_interest(looked));
        kernel_[i].fd = set != nullptr ? -1 : looked.fd; // looking into a set asks the kernel too
    }
    return frame_.looked_count != 0;
}

bool PollWait::changed() const
{
    std::size_t next = 0;
    for (nfds_t i = 0; i < count_; ++i) {
        sock::Socket *socket = nullptr;
        Set *set = nullptr;
        if (!source_of(fds_[i].fd, socket, set))
            socket = nullptr;
        const bool known = next < frame_.looked_count && looked_[next].index == i;
        if (socket != (known ? looked_[next].socket : nullptr) || set != (known ? looked_[next].set : nullptr))
            return true;
        next += known ? 1 : 0;
    }
    return false;
}

sock::RingMask PollWait::rings() const
{
    if (sock::open_rings(sock::kAllRings) == sock::kMainRing) [[likely]]
        return sock::kMainRing;
    sock::RingMask rings = 0;
    for (std::size_t i = 0; i < frame_.looked_count; ++i)
        rings |= looked_[i].set != nullptr ? sock::kAllRings : sock::rings_of(*looked_[i].socket);
    return rings;
}

std::uint32_t PollWait::wanted(const pollfd &entry) const
{
    const std::uint32_t events = bits(entry.events);
    if (style_ == Style::kPoll)
        return events | kAlways;
    return events | ((events & POLLIN) != 0 ? POLLHUP | POLLERR : 0) | ((events & POLLOUT) != 0 ? POLLERR : 0) |
           POLLNVAL;
}

// The kernel's socket has nearly always room to send, whether the bytes would go that way or not: a look leaves that to
// ready_events().
std::uint32_t PollWait::kernel_interest(const Looked &looked) const
{
    return looked.interest & ~kOut;
}

std::uint32_t PollWait::find(const Looked &looked) const
{
    const std::uint32_t found = looked.set != nullptr ? (set_readable(*looked.set) ? POLLIN | POLLRDNORM : 0)
                                                      : sock::ready_events(*looked.socket, looked.fd, looked.interest);
    return found & wanted(fds_[looked.index]);
}

bool PollWait::interrupted() const
{
    return libc::signal_counts().all != handlers_;
}

// ---- looking -----------------------------------------------------------------------------------------------------

int PollWait::kernel_only()
{
    if (deadline_.immediate())
        return look_at_kernel();
    const libc::WhenLeft<PollWait, &PollWait::leave> left(*this);
    deadline_.start();
    int n = 0;
    while (n == 0)
        n = sleep();
    return n;
}

int PollWait::aware()
{
    const config::Params &params = config::params();
    KernelTurn kernel(params.select_poll_os_ratio, params.select_skip_os, record_.poll_share);
    const bool asked = kernel.due_at_call(frame_.looked_count != count_);
    int n = look(kernel, asked);
    if (n == 0 && deadline_.immediate() && !sure_) {
        sock::engine_drain(rings_);
        n = ours_fast();
        if (n > 0 && kernel_may_be_earlier())
            n = look_at_kernel();
    }
    if (n != 0 || (deadline_.immediate() && asked))
        return n;
    if (deadline_.immediate())
        return look_at_kernel();
    const libc::WhenLeft<PollWait, &PollWait::leave> left(*this);
    deadline_.start();
    SpinTime time = time_to_spin();
    if (time.spins())
        n = spin(kernel, time);
    if (n != 0)
        return n;
    while (n == 0)
        n = sleep();
    time.slept();
    return n;
}

int PollWait::look(KernelTurn &kernel, bool kernel_first)
{
    rings_ = rings();
    left_ |= rings_;
    sure_ = sock::engine_poll(rings_) == 0;
    if (ends_ && !sure_)
        sock::engine_drain(rings_); // an END may be behind what one look takes, or be with another thread
    if (!kernel_first) {
        const int n = ours_fast();
        if (n <= 0 || !kernel_may_be_earlier())
            return n;
    }
    const int n = look_at_kernel();
    kernel.done();
    return n;
}

// There is something in the array, beside what has news, that only the kernel knows of, or will.
bool PollWait::kernel_may_be_earlier() const
{
    if (count_ == 1)
        return false;
    return frame_.looked_count != count_ ||
           std::any_of(looked_, looked_ + frame_.looked_count, [](const Looked &looked) {
               return looked.set != nullptr || sock::waits_for_kernel(*looked.socket, looked.interest & ~kOut);
           });
}

// Writes the results of our descriptors, and 0 for all others.
int PollWait::ours()
{
    int n = 0;
    for (nfds_t i = 0; i < count_; ++i)
        fds_[i].revents = 0;
    for (std::size_t i = 0; i < frame_.looked_count; ++i) {
        const std::uint32_t found = find(looked_[i]);
        fds_[looked_[i].index].revents = to_short(found);
        n += found != 0 ? 1 : 0;
    }
    return n;
}

// The same without a system call while there is nothing.
int PollWait::ours_fast()
{
    for (std::size_t i = 0; i < frame_.looked_count; ++i) {
        const Looked &looked = looked_[i];
        const bool maybe = looked.set != nullptr ? looked.set->ready.load(std::memory_order_relaxed) != 0
                                                 : sock::ready_events_fast(*looked.socket, looked.interest) != 0;
        if (maybe) {
            counted_.by_kernel(0);
            return ours();
        }
    }
    return 0;
}

int PollWait::look_at_kernel()
{
    if (changed())
        return kAgain;
    return ask_kernel() < 0 ? -1 : collect();
}

// Until nothing has come by the engine since the kernel was asked: what came before something of the one is then among
// what was found of the other. Another thread that takes it is waited for: it may have told nobody yet.
int PollWait::ask_kernel()
{
    for (unsigned i = 0;; ++i) {
        const int n = libc::real.poll(kernel_, count_, 0);
        if (n <= 0 || i == kMostLooks || sock::engine_drain(rings_) == 0)
            return n;
    }
}

// What the last kernel call found, with what our own descriptors have.
int PollWait::collect()
{
    for (std::size_t i = 0; i < frame_.looked_count; ++i) {
        const pollfd &kernel = kernel_[looked_[i].index];
        if (kernel.revents != 0 && looked_[i].socket != nullptr)
            sock::note_kernel_events(*looked_[i].socket, bits(kernel.revents));
    }
    int n = ours();
    const int by_device = n;
    std::size_t next = 0;
    for (nfds_t i = 0; i < count_; ++i) {
        if (next < frame_.looked_count && looked_[next].index == i) {
            ++next;
            continue;
        }
        const std::uint32_t found = bits(kernel_[i].revents) & wanted(fds_[i]);
        fds_[i].revents = to_short(found);
        n += found != 0 ? 1 : 0;
    }
    counted_.by_kernel(n - by_device);
    return n;
}

SpinTime PollWait::time_to_spin()
{
    const config::Params &params = config::params();
    if (spun_)
        return {0, deadline_.end()};
    if (goes_by_habit(params.select_poll_learns))
        return {record_.spins, record_.rest, deadline_.end()};
    return {params.select_poll * kNanosPerMicro, deadline_.end(),
            gives_way(params.select_poll_gives_way) ? &record_.rest : nullptr};
}

int PollWait::spin(KernelTurn &kernel, SpinTime &time)
{
    SpinMask mask(mask_);
    int n = 0;
    while (n == 0) {
        n = look(kernel, kernel.due_in_spin());
        if (n == 0 && interrupted())
            return fail(EINTR);
        if (n == 0 && time.over()) {
            spun_ = true; // not once more when the array has to be classified again
            return 0;
        }
    }
    if (n > 0)
        time.hit();
    return n;
}

// ---- sleeping -------------------------------------------------------------------------------------------------------

void PollWait::attach()
{
    for (std::size_t i = 0; i < frame_.looked_count; ++i) {
        Looked &looked = looked_[i];
        if (looked.set != nullptr)
            watch_set(*looked.set, looked.watcher);
        else
            sock::watch(*looked.socket, looked.watcher);
    }
}

// The kernel may go on about something that isn't ready for the program (a FIN behind bytes that came by the endpoint,
// room in a socket that isn't used). Such bits are left out, for a while, or until the socket has other news.
void PollWait::mute()
{
    for (std::size_t i = 0; i < frame_.looked_count; ++i) {
        pollfd &kernel = kernel_[looked_[i].index];
        const std::uint32_t said = bits(kernel.revents);
        if (said == 0 || looked_[i].set != nullptr)
            continue;
        muted_ = true;
        kernel.events = to_short(bits(kernel.events) & ~said);
        if ((said & kAlways) != 0)
            kernel.fd = -1;
    }
    if (style_ == Style::kPoll)
        return;
    for (nfds_t i = 0; i < count_; ++i) // a hang-up that select() doesn't tell
        if ((bits(kernel_[i].revents) & kAlways) != 0) {
            muted_ = true;
            kernel_[i].fd = -1;
        }
}

void PollWait::unmute()
{
    muted_ = false;
    for (nfds_t i = 0; i < count_; ++i)
        kernel_[i] = {fds_[i].fd, fds_[i].events, 0};
}

int PollWait::sleep_in_kernel(sock::RingMask rings)
{
    std::int64_t left_ns = deadline_.left_ns();
    if (muted_)
        left_ns = std::min(left_ns, kMutedSleep);
    timespec left = to_timespec(left_ns);
    const timespec *const timeout = left_ns == kForever ? nullptr : &left;
    nfds_t end = count_;
    kernel_[end++] = {frame_.sleeper->wake_fd(), POLLIN, 0};
    for (; rings != 0; rings &= rings - 1)
        kernel_[end++] = {sock::engine_wait_fd(static_cast<unsigned>(__builtin_ctzll(rings))), POLLIN, 0};
    const int n = libc::real.ppoll(kernel_, end, timeout, mask_);
    frame_.sleeper->told(kernel_[count_].revents);
    if (n >= 0 || errno != EINVAL)
        return n;
    // The array is as long as RLIMIT_NOFILE allows: no room for ours.
    left = to_timespec(std::min(left_ns, kMutedSleep));
    return libc::real.ppoll(kernel_, count_, &left, mask_);
}

// Where a thread sleeps that waits for input of one socket, and of nothing else.
std::uint32_t PollWait::place() const
{
    constexpr std::uint32_t kInput = POLLIN | POLLRDNORM | POLLPRI | POLLRDHUP;
    if (count_ != 1 || frame_.looked_count != 1 || mask_ != nullptr || looked_[0].socket == nullptr ||
        (looked_[0].interest & (POLLIN | POLLRDNORM)) == 0 || (looked_[0].interest & ~kInput) != 0)
        return sock::kNoPlace;
    return sock::place_for_input(*looked_[0].socket, looked_[0].fd);
}

int PollWait::sleep_at(std::uint32_t place, sock::RingMask rings)
{
    if (place == sock::kNoPlace)
        return sleep_in_kernel(rings);
    kernel_[0].revents = 0;
    frame_.sleeper->sleep_at_place(deadline_.end());
    return 0;
}

// Sleeps until something happens. 0: look again.
int PollWait::sleep()
{
    if (!muted_)
        unmute(); // with room to send
    const std::uint32_t place = this->place();
    const bool on_descriptors = place == sock::kNoPlace;
    frame_.begin_sleep(place);
    attach();
    const sock::RingMask rings = frame_.looked_count != 0 ? sock::open_rings(this->rings()) : 0;
    left_ |= rings;
    int n = changed() ? kAgain : ours();
    const bool over = n == 0 && interrupted();
    const bool stays = n != 0 || over;
    if (stays || !(on_descriptors ? frame_.arm(rings) : sock::engine_rest(*looked_[0].socket))) {
        frame_.end_sleep(); // which changes errno
        if (stays)
            sock::engine_poll(rings);
        else
            sock::engine_drain(rings); // who is taking what is there may need this processor
        if (n > 0 && kernel_may_be_earlier())
            n = look_at_kernel();
        return over ? fail(EINTR) : n;
    }
    counted_.asleep();
    const int slept = sleep_at(place, rings);
    const int error = errno;
    counted_.awake();
    frame_.woken();
    frame_.end_sleep();
    const bool found = sock::engine_poll(rings) != 0;
    rings_ = rings;
    n = on_descriptors && slept >= 0 && (!found || ask_kernel() >= 0) ? collect() : ours();
    if (n != 0)
        return n;
    if (slept < 0)
        return fail(error);
    if (interrupted())
        return fail(EINTR);
    if (deadline_.left_ns() == 0)
        return kTimedOut;
    if (slept == 0 || frame_.notified.load(std::memory_order_relaxed) || muted_)
        unmute();
    else
        mute();
    return 0;
}

} // namespace vma::mux
