// SPDX-License-Identifier: BSD-2-Clause
// Sockets are slots of an array, engine events a ring under a mutex. A lock and a plain loop everywhere: this is a
// model.
#include "compat/test/mux/fake_engine.hpp"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <thread>
#include <utility>

#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/mux/mux.hpp"

namespace vma::fake {

bool g_quiet_kernel = false;
bool g_keeps_unread = false;
void (*g_after_look)() = nullptr;
void (*g_after_take)() = nullptr;
void (*g_before_drain)() = nullptr;
void (*g_before_return)() = nullptr;
void (*g_after_asking)() = nullptr;

Engine &engine()
{
    static Engine instance;
    return instance;
}

void notify(sock::Socket &s, std::uint32_t events)
{
    sock::LockGuard guard(s.watch_lock);
    sock::Watcher *next = nullptr;
    for (sock::Watcher *w = s.watchers; w != nullptr; w = next) {
        next = w->next;
        w->notify(w, events);
    }
}

void write_byte(sock::Socket &s)
{
    while (::write(s.peer, "x", 1) < 0 && errno == EAGAIN)
        std::this_thread::yield(); // until it is read
}

} // namespace vma::fake

namespace vma::sock {

using fake::Engine;
using fake::engine;
using fake::Event;
using fake::notify;
using fake::write_byte;

Socket *g_table[kMaxTracked];

namespace {

constexpr std::uint32_t kIn = POLLIN | POLLRDNORM;
constexpr std::uint32_t kOut = POLLOUT | POLLWRNORM | POLLWRBAND;
constexpr std::uint32_t kAlways = POLLHUP | POLLERR | POLLNVAL;

struct Sleepers {
    Mutex lock;
    Sleeper *first = nullptr;
};
constinit Sleepers g_sleepers;

struct WakeFd { // closed with the thread
    const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ~WakeFd() { ::close(fd); }
};

void once(void (*&hook)())
{
    if (hook != nullptr)
        std::exchange(hook, nullptr)();
}

std::uint32_t kernel_events(int fd, std::uint32_t interest)
{
    pollfd entry = {fd, static_cast<short>(interest), 0};
    return ::poll(&entry, 1, 0) > 0 ? static_cast<std::uint16_t>(entry.revents) : 0;
}

bool arm()
{
    Engine &e = engine();
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(e.wait_fd, &count, sizeof count);
    LockGuard guard(e.lock);
    e.armed = true;
    return e.queue.empty();
}

} // namespace

// ---- socket.hpp -----------------------------------------------------------------------------------------------------

void watch(Socket &s, Watcher &w)
{
    LockGuard guard(s.watch_lock);
    w.socket = &s;
    w.prev = nullptr;
    w.next = s.watchers;
    if (w.next != nullptr)
        w.next->prev = &w;
    s.watchers = &w;
}

void unwatch(Watcher &w)
{
    Socket *const s = w.socket;
    if (s == nullptr)
        return;
    LockGuard guard(s->watch_lock);
    (w.prev != nullptr ? w.prev->next : s->watchers) = w.next;
    if (w.next != nullptr)
        w.next->prev = w.prev;
    w.socket = nullptr;
}

bool tells_what_came_before(const Socket &)
{
    return true;
}

bool is_offloaded(const Socket &s)
{
    const bool offloaded = s.offloaded.load(std::memory_order_seq_cst);
    if (!offloaded)
        once(fake::g_after_asking);
    return offloaded;
}

bool tells_of_itself(const Socket &s)
{
    return is_offloaded(s);
}

std::uint32_t ready_events_fast(const Socket &s, std::uint32_t interest)
{
    const std::uint32_t events = (s.bytes.load() > 0 ? kIn : 0) | (s.full.load() ? 0 : kOut);
    return events & interest;
}

std::uint32_t ready_events(Socket &s, int fd, std::uint32_t interest)
{
    if (!is_offloaded(s))
        return kernel_events(fd, interest) & (interest | kAlways);
    const std::uint32_t kernel = fake::g_quiet_kernel ? 0 : kernel_events(fd, interest & ~kOut);
    const std::uint32_t found = (kernel | ready_events_fast(s, interest)) & (interest | kAlways);
    if (found == 0)
        once(fake::g_after_look);
    return found;
}

bool waits_for_kernel(const Socket &, std::uint32_t)
{
    return false;
}

std::uint32_t screen_events(Socket &, int, std::uint32_t events)
{
    return events;
}

MuxHook &mux_hook(Socket &s)
{
    return s.hook;
}

void note_kernel_events(Socket &, std::uint32_t) {}

// Waits are to be ours, which is what is tested.
Carrier carrier_of(const Socket &)
{
    return Carrier::kOurs;
}

bool wait_in_kernel(Socket &, int (*)(const void *), const void *, int &)
{
    return false;
}

void pin_to_kernel(Socket &s, const char *why, Heir)
{
    s.pinned.store(true);
    give_to_kernel(s, why);
}

void give_to_kernel(Socket &s, const char *)
{
    once(fake::g_before_return);
    if (fake::g_keeps_unread && s.bytes.load() > 0)
        return;
    if (!s.offloaded.exchange(false, std::memory_order_seq_cst))
        return;
    for (int left = s.bytes.exchange(0); left > 0; --left)
        write_byte(s);
    mux::became_kernel_only(s);
    notify(s, ~0U);
}

// ---- engine.hpp -----------------------------------------------------------------------------------------------------

bool engine_active()
{
    return true;
}

RingMask rings_of(const Socket &)
{
    return kMainRing;
}

RingMask open_rings(RingMask rings)
{
    return rings & kMainRing;
}

namespace {

unsigned poll_locked(Engine &e)
{
    unsigned n = 0;
    for (;; ++n) {
        e.lock.lock();
        if (e.queue.empty())
            break;
        const Event event = e.queue.front();
        e.queue.pop_front();
        e.lock.unlock();
        once(fake::g_after_take);
        if (event.bytes != 0) {
            notify(*event.socket, 0);
            event.socket->bytes.fetch_add(event.bytes);
        }
        notify(*event.socket, event.events);
    }
    e.lock.unlock();
    return n;
}

} // namespace

unsigned engine_poll(RingMask)
{
    Engine &e = engine();
    if (!e.poll_lock.try_lock())
        return 1;
    const unsigned n = poll_locked(e);
    e.poll_lock.unlock();
    return n;
}

unsigned engine_drain(RingMask)
{
    once(fake::g_before_drain);
    const LockGuard guard(engine().poll_lock);
    return poll_locked(engine());
}

int engine_wait_fd(unsigned)
{
    return engine().wait_fd;
}

bool engine_arm(RingMask rings)
{
    if (rings == 0)
        return true;
    engine().asleep.fetch_add(1);
    if (arm())
        return true;
    engine_woken();
    return false;
}

void engine_woken(RingMask rings)
{
    if (rings != 0)
        engine().asleep.fetch_sub(1);
}

void engine_leave(RingMask)
{
    if (engine().asleep.load() == 0)
        return;
    while (!arm())
        engine_poll();
}

void engine_leave_by_jump(RingMask rings)
{
    engine_leave(rings);
}

Sleeper::Sleeper(std::uint32_t) : outer_(-1), process_(0)
{
    static thread_local WakeFd wake;
    fd_ = wake.fd;
    libc::set_signal_wake_fd(fd_);
    LockGuard guard(g_sleepers.lock);
    next_ = g_sleepers.first;
    if (next_ != nullptr)
        next_->prev_ = this;
    g_sleepers.first = this;
}

std::uint32_t place_for_input(Socket &, int)
{
    return kNoPlace;
}

bool engine_rest(const Socket &)
{
    return arm();
}

void Sleeper::sleep_at_place(std::int64_t) const {}

void Sleeper::make_descriptor() {}

Sleeper::~Sleeper()
{
    libc::set_signal_wake_fd(-1);
    {
        LockGuard guard(g_sleepers.lock);
        (prev_ != nullptr ? prev_->next_ : g_sleepers.first) = next_;
        if (next_ != nullptr)
            next_->prev_ = prev_;
    }
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(fd_, &count, sizeof count);
}

void Sleeper::wake() const
{
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(fd_, &one, sizeof one);
}

void kick_sleepers()
{
    LockGuard guard(g_sleepers.lock);
    for (Sleeper *s = g_sleepers.first; s != nullptr; s = s->next_)
        s->wake();
}

} // namespace vma::sock
