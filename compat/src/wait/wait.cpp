// SPDX-License-Identifier: BSD-2-Clause
// Waiting for an offloaded socket: a spin on the completion queue, then a sleep on everything that can bring news. Also
// the list of sleeping threads.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <iterator>

#include "compat/src/base/clock.hpp"
#include "compat/src/base/sandboxed.hpp"
#include "compat/src/base/spin_time.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/libc/thread_key.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/wait/thread_record.hpp"

namespace vma::sock {

namespace {

constexpr std::int64_t kNsPerUs = 1000;
constexpr std::int64_t kShortTurnNs = 100'000; // of a rate limit: a sleep takes longer
constexpr unsigned kTurnsPerCancel = 64;
constexpr unsigned kTurnsPerKernelLook = 16;

std::uint32_t signals_of(const Wait &wait)
{
    const libc::SignalCounts counts = libc::signal_counts();
    return wait.any_signal ? counts.all : counts.interrupting;
}

} // namespace

bool is_interrupted(const Wait &wait)
{
    return signals_of(wait) != wait.signals;
}

namespace {

bool is_over(const Wait &wait)
{
    return wait.deadline_ns != kForever && now_ns() >= wait.deadline_ns;
}

// An error alone is no reason to try again: the call that has just been tried would have told it. What is left is in
// the error queue.
bool may_be_ready(const Socket &s, short events)
{
    return (ready_events_fast(s, static_cast<std::uint32_t>(events)) & ~std::uint32_t{POLLERR}) != 0;
}

// 0 go on sleeping is due, 1 ready, or a negative errno.
int check(const Socket &s, short events, const Wait &wait)
{
    if (s.generation.load(std::memory_order_acquire) != wait.generation)
        return -EBADF;
    if (offloaded(s) == wait.kernel_only || may_be_ready(s, events))
        return 1;
    return is_interrupted(wait) ? -EINTR : 0;
}

int spin(Socket &s, int fd, short events, Wait &wait, mux::SpinTime &time)
{
    const std::uint32_t yield = config::params().rx_poll_yield;
    for (unsigned turn = 1;; ++turn) {
        const bool polite = time.polite();
        if (wait.look == nullptr)
            engine_poll(ring_of(s));
        else if ((wait.found = wait.look(wait.look_argument, polite)))
            return 1;
        const int result = check(s, events, wait);
        if (result != 0)
            return result;
        const auto interest = static_cast<std::uint32_t>(events);
        if ((polite || turn % kTurnsPerKernelLook == 0) && waits_for_kernel(s, interest) &&
            ready_events(s, live_fd(s, fd), interest) != 0)
            return 1;
        if (time.over())
            return now_ns() >= wait.deadline_ns ? -EAGAIN : 0;
        if (!polite && yield != 0 && turn % yield == 0)
            sched_yield();
        else
            cpu_relax();
        if (turn % kTurnsPerCancel == 0 || polite)
            pthread_testcancel(); // no lock is held, and no list has anything of this stack
    }
}

// When the socket's rate lets it send, if that is waited for.
std::int64_t turn_of(const Socket &s, short events)
{
    return (events & POLLOUT) != 0 ? held_until(s) : kForever;
}

bool sends_by_kernel(const Socket &s)
{
    const Stream *const stream = stream_of(s);
    return stream == nullptr || stream->tx.path.load(std::memory_order_acquire) == Path::kKernel;
}

// There is an error queue that nobody reads: poll() tells of it for as long as there is something in it, where the
// kernel's own receive sleeps until there is more.
bool has_unread_errors(Socket &s, int fd, short events)
{
    return events == POLLIN && protocol(s).messages && (ready_events_fast(s, 0) & POLLERR) != 0 &&
           (ready_events(s, live_fd(s, fd), 0) & POLLERR) != 0;
}

// For a sleep that such a queue is not to end. 1: what is there by now, which would not be told any more, is enough.
int begin_edges(Socket &s, int fd, mux::Frame &frame)
{
    std::uint32_t there = 0;
    if (!frame.hear_edges(live_fd(s, fd), there))
        return 0;
    if (const int error = libc::read_option(live_fd(s, fd), SOL_SOCKET, SO_ERROR, 0); error != 0) {
        keep_error(s, error); // it came since the call had looked
        return 1;
    }
    return (there & EPOLLIN) != 0 ? 1 : 0;
}

// What the kernel is to tell meanwhile, until `turn` at most. 0: look again.
int sleep_in_kernel(Socket &s, int fd, short events, const Wait &wait, mux::Frame &frame, std::int64_t turn)
{
    Sleeper &sleeper = *frame.sleeper;
    const int live = live_fd(s, fd);
    const bool kernel_carries = (events & POLLOUT) == 0 || (sends_by_kernel(s) && turn == kForever);
    pollfd fds[] = {{frame.edges >= 0 ? frame.edges : live, static_cast<short>(kernel_carries ? events : 0), 0},
                    {engine_wait_fd(static_cast<unsigned>(__builtin_ctzll(frame.armed))), POLLIN, 0},
                    {sleeper.wake_fd(), POLLIN, 0}};
    timespec timeout = {};
    const std::int64_t until = std::min(wait.deadline_ns, turn);
    const std::int64_t left = until - now_ns();
    if (until != kForever && left > 0)
        timeout = mux::to_timespec(left);
    const bool told = libc::real.ppoll(fds, std::size(fds), until == kForever ? nullptr : &timeout, nullptr) > 0;
    if (live_fd(s, fd) != live)
        fds[0].revents = 0; // of another file, maybe, that has got the number
    if (told && fds[0].revents != 0)
        note_kernel_events(s, static_cast<std::uint32_t>(fds[0].revents));
    sleeper.told(fds[2].revents);
    frame.woken();
    const bool by_kernel = protocol(s).messages || waits_for_kernel(s, static_cast<std::uint32_t>(events));
    if ((fds[0].revents & events) != 0 && by_kernel)
        return 1;
    return is_over(wait) ? -EAGAIN : 0;
}

// The same at its place.
int sleep_at_place(const Wait &wait, const Sleeper &sleeper)
{
    sleeper.sleep_at_place(wait.deadline_ns);
    return is_over(wait) ? -EAGAIN : 0;
}

// One sleep. 0: look again. What it leaves on lists lies in a frame on the heap: it may be left by a jump or
// cancellation.
int sleep_once(Socket &s, int fd, short events, const Wait &wait, mux::Frame *&frame)
{
    const bool by_edges = has_unread_errors(s, fd, events);
    const std::uint32_t place = events == POLLIN && !by_edges ? place_for_input(s, fd) : kNoPlace;
    frame = mux::acquire_frame();
    if (frame == nullptr || !frame->watch_one(s, place)) { // no memory
        if (frame != nullptr)
            frame->release();
        libc::real.poll(nullptr, 0, 1);
        return 0;
    }
    // First: a turn that comes behind the look, and before it is asked for, is news that nobody tells.
    const std::int64_t turn = turn_of(s, events);
    int result = check(s, events, wait);
    if (result == 0 && by_edges) [[unlikely]]
        result = begin_edges(s, fd, *frame);
    const RingMask ring = ring_of(s); // whoever changes it wakes sleepers
    const bool at_place = place != kNoPlace && ring == kMainRing;
    const bool stays = result == 0 && !(at_place ? engine_rest(s) : place == kNoPlace && frame->arm(ring));
    if (stays)
        result = is_over(wait) ? -EAGAIN : 0;
    else if (result == 0)
        result = at_place ? sleep_at_place(wait, *frame->sleeper)
                          : sleep_in_kernel(s, fd, events, wait, *frame, std::min(turn, turn_of(s, events)));
    frame->release();
    // Who is taking what is there may need this processor: a look that passes it by would only come back here.
    if (stays)
        engine_drain(ring);
    else
        engine_poll(ring);
    return result;
}

} // namespace

std::int64_t now_ns()
{
    return mux::now_ns();
}

Wait begin_wait(const Socket &s, std::int64_t timeout_us)
{
    Wait wait = {};
    wait.generation = s.generation.load(std::memory_order_acquire);
    wait.any_signal = timeout_us >= 0;
    wait.deadline_ns = timeout_us >= 0 ? now_ns() + timeout_us * kNsPerUs : kForever;
    wait.signals = signals_of(wait);
    return wait;
}

namespace {

mux::SpinTime time_to_spin(Socket &s, short events, const Wait &wait)
{
    const config::Params &params = config::params();
    const std::int64_t turn = turn_of(s, events);
    if (turn != kForever && turn - now_ns() > kShortTurnNs) // nobody hastens the clock
        return {0, wait.deadline_ns};
    const bool by_habit = mux::goes_by_habit(params.rx_poll_learns);
    mux::ThreadRecord *const record =
        by_habit || mux::gives_way(params.rx_poll_gives_way) ? mux::thread_record() : nullptr;
    if (record == nullptr || !by_habit) // no memory, or the user has said it
        return {params.rx_poll * mux::kNanosPerLoop, wait.deadline_ns, record != nullptr ? &record->rest : nullptr};
    return {(events & POLLOUT) != 0 ? s.send_spins : s.receive_spins, record->rest, wait.deadline_ns};
}

// A wait that has begun. Who leaves it has taken from the queue what others sleep for.
struct Waiting {
    Socket &s;
    mux::Frame *frame = nullptr; // of its last sleep

    void leave()
    {
        if (frame != nullptr)
            frame->release();
        engine_leave_by_jump(ring_of(s));
    }
};

// Of what was not ready at once.
int wait_longer(Socket &s, int fd, short events, Wait &wait, mux::SpinTime time)
{
    Waiting waiting = {s};
    const libc::WhenLeft<Waiting, &Waiting::leave> left(waiting);
    const bool receives = (events & POLLIN) != 0;
    int result = time.spins() ? spin(s, fd, events, wait, time) : 0;
    if (result > 0) {
        time.hit();
        if (receives)
            stats::add(record_of(s).now.rx.poll_hit);
    }
    if (result != 0)
        return result;
    if (receives)
        stats::add(record_of(s).now.rx.poll_miss);
    while (result == 0) {
        result = sleep_once(s, fd, events, wait, waiting.frame);
        if (result == 0)
            result = check(s, events, wait);
        if (result == 0 && s.kernel_news.load(std::memory_order_acquire))
            result = 1;
    }
    time.slept();
    return result;
}

} // namespace

int wait_for(Socket &s, int fd, short events, Wait &wait)
{
    // Who sends has just found no room. News of what the kernel has to read would say again and again that there may be
    // some.
    if ((events & POLLOUT) != 0) {
        if (is_interrupted(wait))
            return -EINTR;
        if (is_over(wait))
            return -EAGAIN;
    }
    wait.kernel_only = !protocol(s).messages && !offloaded(s);
    int result = check(s, events, wait);
    if (result == 0)
        result = wait_longer(s, fd, events, wait, time_to_spin(s, events, wait));
    engine_leave(ring_of(s));
    return result > 0 ? 0 : result;
}

// Whoever closes a socket that another thread reads may come at any moment between that thread's instructions, so what
// this is for is rare, and looks now and then will do.
[[gnu::cold]] int await_kept(int fd, short events, const Wait &wait)
{
    constexpr int kLookMs = 10;
    for (pollfd p = {fd, events, 0}; libc::uncancelled::finds_nothing(p);) {
        if (is_interrupted(wait))
            return -EINTR;
        if (is_over(wait))
            return -EAGAIN;
        libc::real.poll(&p, 1, kLookMs);
    }
    return 0;
}

namespace {

void close_wake_fd(void *value)
{
    mux::t_wait.wake_fd = -1;
    libc::close_private(static_cast<int>(reinterpret_cast<std::intptr_t>(value)) - 1);
}

// This thread's eventfd, closed when the thread ends.
int make_wake_fd()
{
    const int fd = libc::make_private(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    mux::g_waits.wake_key.set(reinterpret_cast<void *>(static_cast<std::intptr_t>(fd) + 1), close_wake_fd);
    return fd;
}

} // namespace

void Sleeper::make_descriptor()
{
    if (mux::t_wait.wake_fd < 0)
        mux::t_wait.wake_fd = make_wake_fd();
}

Sleeper::Sleeper(std::uint32_t place)
    : outer_(libc::signal_wake_fd()), process_(mux::g_waits.process.load(std::memory_order_relaxed))
{
    if (place != kNoPlace) {
        enter_place(place);
    } else {
        fd_ = mux::t_wait.wake_fd;
        if (fd_ >= 0 && fd_ == outer_)
            drain(); // it would end this sleep; the destructor makes it good
        libc::set_signal_wake_fd(fd_);
    }
    const LockGuard guard(mux::g_waits.sleepers_lock);
    enlist();
}

void Sleeper::enlist()
{
    prev_ = nullptr;
    next_ = mux::g_waits.sleepers;
    if (next_ != nullptr)
        next_->prev_ = this;
    mux::g_waits.sleepers = this;
}

Sleeper::~Sleeper()
{
    const bool is_child = process_ != mux::g_waits.process.load(std::memory_order_relaxed);
    libc::set_signal_wake_fd(is_child ? -1 : outer_);
    {
        LockGuard guard(mux::g_waits.sleepers_lock);
        if (next_ != nullptr)
            next_->prev_ = prev_;
        if (prev_ != nullptr)
            prev_->next_ = next_;
        else
            mux::g_waits.sleepers = next_;
    }
    if (place_ != nullptr && !is_child) // else it is the parent's
        leave_place();
    if (fd_ >= 0 && fd_ == outer_)
        wake(); // the outer one looks again
    else if (fd_ >= 0 && !empty_)
        drain();
}

void Sleeper::drain() const
{
    std::uint64_t count;
    [[maybe_unused]] const ssize_t n = libc::uncancelled::read(fd_, &count, sizeof count);
}

// It has neither the parent's place nor, where none of its own could be had, a descriptor.
void Sleeper::go_on_in_child()
{
    place_ = nullptr;
    fd_ = fd_ >= 0 ? mux::t_wait.wake_fd : -1;
    enlist();
}

void kick_sleepers()
{
    LockGuard guard(mux::g_waits.sleepers_lock);
    for (const Sleeper *sleeper = mux::g_waits.sleepers; sleeper != nullptr; sleeper = sleeper->next_)
        sleeper->wake();
}

namespace {

// The parent's thread sleeps on the file that this one has. Where a handler has made this process, the call that it has
// interrupted goes on by its number.
void renew_wake_fd()
{
    const int fd = mux::t_wait.wake_fd;
    if (fd < 0)
        return;
    const int own = sandboxed() || libc::signal_wake_fd() == -1 ? -1 : ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (own >= 0 && libc::real.dup3(own, fd, O_CLOEXEC) == fd) {
        libc::uncancelled::close(own);
        return;
    }
    if (own >= 0)
        libc::uncancelled::close(own);
    libc::close_private(fd);
    mux::t_wait.wake_fd = -1;
    mux::g_waits.wake_key.set(nullptr, close_wake_fd);
}

} // namespace

void sleepers_after_fork_in_child()
{
    mux::g_waits.process.fetch_add(1, std::memory_order_relaxed);
    mux::g_waits.sleepers_lock.reset();
    mux::g_waits.sleepers = nullptr;
    renew_wake_fd();
    if (libc::signal_wake_fd() != mux::t_wait.wake_fd)
        libc::set_signal_wake_fd(-1); // an epoll set's, which is the parent's
    mux::ThreadRecord *const record = mux::t_wait.record;
    for (mux::Frame *frame = record != nullptr ? record->frames : nullptr; frame != nullptr; frame = frame->deeper)
        if (frame->sleeper)
            frame->sleeper->go_on_in_child();
}

} // namespace vma::sock
