// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/places.hpp"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>

#include <atomic>

#include <rdma/fi_endpoint.h>

#include "compat/src/base/clock.hpp"
#include "compat/src/base/fence.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/helper_rest.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/libc/futex.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

namespace {

constexpr std::uint64_t kOneSleep = (std::uint64_t{1} << 32) + 1;
// After news of the kernel more may come, and the helper thread is a detour: the next sleeps are on the descriptor.
// One, as at first the peer has its last messages there; many where news keep coming.
constexpr std::uint8_t kFewNews = 8;
constexpr std::uint8_t kManySleeps = 16;

// Who sleeps there looks again.
void wake_at(fi_vma_place &place)
{
    __atomic_fetch_add(&place.turn, 1, __ATOMIC_SEQ_CST);
    libc::futex_wake_shared(place.turn);
}

// What the thread's type of cancellation was.
struct CancelType {
    int before = PTHREAD_CANCEL_DEFERRED;

    void put_back() { ::pthread_setcanceltype(before, nullptr); }
};

// A cancellation point, as the call is that it is part of: the thread may end, or jump, between any two instructions of
// this function.
[[gnu::noinline]] void wait_cancellably(const std::uint32_t &word, std::uint32_t value, const timespec *limit)
{
    CancelType type;
    ::pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type.before); // known, before it is changed for the sleep
    const libc::WhenLeft<CancelType, &CancelType::put_back> left(type);
    ::pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
    libc::futex_wait_shared(word, value, limit);
    type.put_back();
}

std::uint64_t mark_of(const Socket &s)
{
    return std::uint64_t{s.generation.load(std::memory_order_acquire)} << 32 | s.index;
}

int open_news()
{
    int fd = g_engine.places.news.load(std::memory_order_acquire);
    if (fd >= 0)
        return fd;
    fd = libc::real.epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        return -1;
    fd = libc::make_private(fd);
    int none = -1;
    if (!g_engine.places.news.compare_exchange_strong(none, fd, std::memory_order_acq_rel)) {
        libc::close_private(fd);
        return none;
    }
    wake_resting_helper(); // it polls that, too
    return fd;
}

// Until it has told once: of all that a thread may sleep for; else of errors alone, each time.
constexpr std::uint32_t kAllOnce = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLET | EPOLLONESHOT;
constexpr std::uint32_t kErrors = EPOLLET;
constexpr std::uint64_t kErrorsMark = std::uint64_t{1} << 31; // above all indices of sockets

bool hear(const Socket &s, int fd, std::uint32_t events)
{
    const int news = open_news();
    epoll_event event = {};
    event.events = events;
    event.data.u64 = mark_of(s) | (events == kErrors ? kErrorsMark : 0);
    return news >= 0 && (libc::real.epoll_ctl(news, EPOLL_CTL_ADD, fd, &event) == 0 ||
                         (errno == EEXIST && libc::real.epoll_ctl(news, EPOLL_CTL_MOD, fd, &event) == 0));
}

// False: the thread is to hear of the kernel itself.
bool hears_of_kernel(Socket &s, int fd)
{
    const std::uint32_t number = g_engine.places.news_number.load(std::memory_order_relaxed);
    if (s.kernel_told.load(std::memory_order_acquire) == number) {
        if (const std::uint8_t news = s.news_of_kernel.load(std::memory_order_relaxed); news != 0)
            s.news_of_kernel.store(news - 1, std::memory_order_relaxed);
        return true;
    }
    if (const std::uint8_t left = s.descriptor_sleeps.load(std::memory_order_relaxed); left != 0) {
        s.descriptor_sleeps.store(left - 1, std::memory_order_relaxed);
        return false;
    }
    const int news = open_news();
    if (news < 0 || s.kernel_told.exchange(number, std::memory_order_acq_rel) == number)
        return news >= 0;
    if (hear(s, live_fd(s, fd), kAllOnce))
        return true;
    s.kernel_told.store(0, std::memory_order_relaxed);
    s.descriptor_sleeps.store(UINT8_MAX, std::memory_order_relaxed);
    return false;
}

// Nothing but its endpoint brings what the thread waits for, as far as is known. rx_lock held.
bool comes_by_endpoint(const Socket &s)
{
    return protocol(s).receives_by_endpoint(s);
}

std::uint32_t place_of(const Socket &s, std::uint32_t count)
{
    return protocol(s).place(s, count);
}

} // namespace

void open_places(const fi_vma_places &places)
{
    constexpr std::size_t kStride = sizeof(fi_vma_place) / sizeof(fi_vma_place::turn);
    libc::set_signal_turns(&places.places->turn, kStride);
    g_engine.places.count.store(places.count, std::memory_order_relaxed);
    g_engine.places.places.store(places.places, std::memory_order_release);
    g_engine.places.open.store(true, std::memory_order_seq_cst);
}

bool close_places()
{
    constexpr int kMostLooks = 1000; // a second: a thread may be in a handler of a signal for long
    g_engine.places.open.store(false, std::memory_order_seq_cst);
    for (int i = 0; i < kMostLooks && g_engine.places.sleepers.load(std::memory_order_seq_cst) != 0; ++i) {
        kick_sleepers();
        libc::real.poll(nullptr, 0, 1);
    }
    if (g_engine.places.sleepers.load(std::memory_order_seq_cst) != 0)
        return false;
    libc::set_signal_turns(nullptr, 0);
    g_engine.places.places.store(nullptr, std::memory_order_release);
    return true;
}

void places_after_fork_in_child()
{
    libc::set_signal_turns(nullptr, 0);
    g_engine.places.open.store(false, std::memory_order_relaxed);
    g_engine.places.places.store(nullptr, std::memory_order_relaxed);
    g_engine.places.news_number.fetch_add(1, std::memory_order_relaxed);
    g_engine.places.sleepers.store(0, std::memory_order_relaxed);
    g_engine.places.sleeps.store(0, std::memory_order_relaxed);
    g_engine.places.wakes.store(0, std::memory_order_relaxed);
    if (const int fd = g_engine.places.news.exchange(-1, std::memory_order_relaxed); fd >= 0)
        libc::close_private(fd); // the parent's
}

std::uint32_t place_for_input(Socket &s, int fd)
{
    const std::uint32_t count = g_engine.places.count.load(std::memory_order_relaxed);
    if (!g_engine.places.open.load(std::memory_order_acquire) || ring_of(s) != kMainRing || sandboxed() ||
        !offloaded(s) || g_engine.devices.open.load(std::memory_order_relaxed) != 0)
        return kNoPlace;
    const LockGuard guard(s.rx_lock); // its endpoint stays
    const std::uint32_t place = comes_by_endpoint(s) ? place_of(s, count) : kNoPlace;
    return place < count && hears_of_kernel(s, fd) ? place : kNoPlace;
}

PlaceSleeps sleeps_at_places()
{
    return {g_engine.places.sleeps.load(std::memory_order_relaxed),
            g_engine.places.wakes.load(std::memory_order_relaxed)};
}

int kernel_news_fd()
{
    return g_engine.places.news.load(std::memory_order_acquire);
}

// Who has been told, and is not on the list yet, sees it here: of the two stores, that of his watcher and that of
// count_news(), the other one sees the first.
bool is_heard_of(const Socket &s)
{
    return s.kernel_told.load(std::memory_order_seq_cst) == g_engine.places.news_number.load(std::memory_order_relaxed);
}

void hear_of_errors(Socket &s, int fd)
{
    hear(s, fd, kErrors);                              // else they are heard of a few looks later
    s.kernel_told.store(0, std::memory_order_seq_cst); // what a sleeper had registered is gone by that
}

namespace {

// What somebody sleeps for has come, and is told once.
void count_news(Socket &s)
{
    const std::uint8_t news = s.news_of_kernel.load(std::memory_order_relaxed);
    s.descriptor_sleeps.store(news < kFewNews ? 1 : kManySleeps, std::memory_order_relaxed);
    if (news < kFewNews)
        s.news_of_kernel.store(news + 1, std::memory_order_relaxed);
    if (protocol(s).messages)
        hear_of_errors(s, s.any_fd.load(std::memory_order_relaxed));
    else
        s.kernel_told.store(0, std::memory_order_seq_cst);
}

} // namespace

void tell_kernel_news()
{
    constexpr int kMost = 64;
    epoll_event events[kMost];
    const int n = libc::real.epoll_wait(kernel_news_fd(), events, kMost, 0);
    const LockGuard guard(g_offload.lock); // none becomes another one meanwhile
    for (int i = 0; i < n; ++i) {
        const std::uint64_t mark = events[i].data.u64 & ~kErrorsMark;
        Socket &s = *socket_by_index(static_cast<std::uint32_t>(mark));
        if (mark_of(s) != mark)
            continue; // closed, while another descriptor of it is open somewhere
        if ((events[i].data.u64 & kErrorsMark) == 0)
            count_news(s);
        note_kernel_events(s, events[i].events);
        notify(s, kKernelTells); // for threads that sleep: sets hear of it by the kernel
    }
}

// Counted first: who closes the queue waits until nobody is (engine_end()). Where it is closed, this is a sleep that
// ends at once.
void Sleeper::enter_place(std::uint32_t place)
{
    g_engine.places.sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (!g_engine.places.open.load(std::memory_order_seq_cst)) {
        g_engine.places.sleepers.fetch_sub(1, std::memory_order_relaxed);
        return;
    }
    place_ = g_engine.places.places.load(std::memory_order_acquire) + place;
    turn_ = __atomic_load_n(&place_->turn, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&place_->asleep, kOneSleep, __ATOMIC_SEQ_CST);
    fence_after_exchange(); // the look that comes now, against who rings (PeerDoorbell::ring() of the provider)
    libc::set_signal_wake_fd(libc::kTurnAtPlace - static_cast<int>(place));
}

void Sleeper::leave_place() const
{
    __atomic_fetch_sub(&place_->asleep, 1, __ATOMIC_SEQ_CST);
    g_engine.places.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void Sleeper::sleep_at_place(std::int64_t until_ns) const
{
    timespec limit = {};
    if (place_ == nullptr)
        return;
    if (until_ns != kForever) {
        const std::int64_t left = until_ns - now_ns();
        if (left <= 0)
            return;
        limit = mux::to_timespec(left);
    }
    g_engine.places.sleeps.fetch_add(1, std::memory_order_relaxed);
    wait_cancellably(place_->turn, turn_, until_ns != kForever ? &limit : nullptr);
    if (place_ == nullptr) // in the child of a fork by a handler, which has not the memory either
        return;
    if (__atomic_load_n(&place_->turn, __ATOMIC_RELAXED) != turn_)
        g_engine.places.wakes.fetch_add(1, std::memory_order_relaxed);
}

void Sleeper::wake() const
{
    if (place_ != nullptr)
        return wake_at(*place_);
    if (fd_ < 0)
        return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = libc::uncancelled::write(fd_, &one, sizeof one);
}

} // namespace vma::sock
