// SPDX-License-Identifier: BSD-2-Clause
// Sockets are slots of an array, engine events a ring under a mutex. A lock and a plain loop everywhere: this is a model.
#include "compat/test/fake_socket.hpp"

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
void (*g_after_look)() = nullptr;

} // namespace vma::fake

namespace vma::sock {

constinit std::atomic<bool> g_sandboxed{false};

class Socket
{
public:
    std::atomic<bool> used{false};
    std::atomic<bool> dual{false};
    std::atomic<bool> pinned{false};
    std::atomic<bool> full{false};
    std::atomic<int> bytes{0}; // by the endpoint, unread
    std::atomic<int> descriptors{0};
    int peer = -1;
    Mutex watch_lock;
    Watcher *watchers = nullptr;
    MuxHook hook;
};

Socket *g_table[kMaxTracked];

namespace {

constexpr std::uint32_t kIn = POLLIN | POLLRDNORM;
constexpr std::uint32_t kOut = POLLOUT | POLLWRNORM | POLLWRBAND;
constexpr std::uint32_t kAlways = POLLHUP | POLLERR | POLLNVAL;

struct Event {
    Socket *socket;
    std::uint32_t events;
};

struct Engine {
    Mutex lock;
    Mutex poll_lock;
    std::deque<Event> queue;
    bool armed = false;
    const int wait_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    std::atomic<int> asleep{0};
};

Engine &engine()
{
    static Engine instance;
    return instance;
}

struct Sleepers {
    Mutex lock;
    Sleeper *first = nullptr;
};
constinit Sleepers g_sleepers;

struct WakeFd { // closed with the thread
    const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ~WakeFd() { ::close(fd); }
};

void notify(Socket &s, std::uint32_t events)
{
    LockGuard guard(s.watch_lock);
    Watcher *next = nullptr;
    for (Watcher *w = s.watchers; w != nullptr; w = next) {
        next = w->next;
        w->notify(w, events);
    }
}

std::uint32_t kernel_events(int fd, std::uint32_t interest)
{
    pollfd entry = {fd, static_cast<short>(interest), 0};
    return ::poll(&entry, 1, 0) > 0 ? static_cast<std::uint16_t>(entry.revents) : 0;
}

void write_byte(Socket &s)
{
    while (::write(s.peer, "x", 1) < 0 && errno == EAGAIN)
        std::this_thread::yield(); // until it is read
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

// ---- socket.hpp ------------------------------------------------------------------------------------------------------------

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

bool is_dual(const Socket &s)
{
    return s.dual.load(std::memory_order_seq_cst);
}

std::uint32_t ready_events_fast(const Socket &s, std::uint32_t interest)
{
    const std::uint32_t events = (s.bytes.load() > 0 ? kIn : 0) | (s.full.load() ? 0 : kOut);
    return events & interest;
}

std::uint32_t ready_events(Socket &s, int fd, std::uint32_t interest)
{
    if (!is_dual(s))
        return kernel_events(fd, interest) & (interest | kAlways);
    const std::uint32_t kernel = fake::g_quiet_kernel ? 0 : kernel_events(fd, interest & ~kOut);
    const std::uint32_t found = (kernel | ready_events_fast(s, interest)) & (interest | kAlways);
    if (found == 0 && fake::g_after_look != nullptr)
        std::exchange(fake::g_after_look, nullptr)();
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

bool wait_bare(Socket &, int (*)(const void *), const void *, int &)
{
    return false;
}

void pin_to_kernel(Socket &s, const char *, Heir)
{
    s.pinned.store(true);
    if (!s.dual.exchange(false, std::memory_order_seq_cst))
        return;
    for (int left = s.bytes.exchange(0); left > 0; --left)
        write_byte(s);
    mux::became_plain(s);
    notify(s, ~0U);
}

// ---- engine.hpp ------------------------------------------------------------------------------------------------------------

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

Sleeper::Sleeper(std::uint32_t)
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

bool engine_rest()
{
    return arm();
}

void Sleeper::sleep_at_place(std::int64_t) const {}

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

// ---- commands of the test --------------------------------------------------------------------------------------------------

namespace vma::fake {

namespace {

constexpr int kMostSockets = 12000;
std::array<sock::Socket, kMostSockets> g_sockets;

sock::Socket &take_socket() // memory of sockets is never used for anything else, but again for sockets
{
    static std::atomic<unsigned> next{0};
    for (unsigned tries = 0; tries < kMostSockets; ++tries) {
        sock::Socket &s = g_sockets[next.fetch_add(1) % kMostSockets];
        bool used = false;
        if (s.used.compare_exchange_strong(used, true))
            return s;
    }
    ::abort();
}

sock::Socket &at(int fd)
{
    sock::Socket *const s = sock::lookup(fd);
    if (s == nullptr)
        ::abort();
    return *s;
}

void on_signal(int)
{
    ++libc::t_signals.all;
    const std::uint64_t one = 1;
    if (libc::t_signals.wake_fd >= 0) [[maybe_unused]]
        const ssize_t n = ::write(libc::t_signals.wake_fd, &one, sizeof one);
}

} // namespace

int open_socket()
{
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        ::abort();
    sock::Socket &s = take_socket();
    s.bytes = 0;
    s.full = false;
    s.pinned = false;
    s.peer = pair[1];
    s.descriptors = 1;
    sock::table_slot(pair[0]).store(&s);
    return pair[0];
}

int dup_socket(int fd)
{
    const int copy = ::dup(fd);
    at(fd).descriptors.fetch_add(1);
    sock::table_slot(copy).store(&at(fd));
    return copy;
}

void close_socket(int fd)
{
    sock::Socket &s = at(fd);
    sock::table_slot(fd).store(nullptr);
    const bool last = s.descriptors.fetch_sub(1) == 1;
    if (mux::descriptor_closed(s, fd, last))
        sock::pin_to_kernel(s, "a closed descriptor of it stays in an epoll set");
    if (last) {
        s.dual = false;
        sock::notify(s, ~0U);
        if (s.peer >= 0)
            ::close(s.peer);
        s.peer = -1;
    }
    ::close(fd);
    if (last)
        s.used = false;
}

void close_peer(int fd)
{
    ::close(at(fd).peer);
    at(fd).peer = -1;
}

void finish_peer(int fd)
{
    ::shutdown(at(fd).peer, SHUT_WR);
}

void post(int fd, std::uint32_t events)
{
    sock::Engine &e = sock::engine();
    bool wake = false;
    {
        sock::LockGuard guard(e.lock);
        e.queue.push_back({&at(fd), events});
        wake = e.armed;
        e.armed = false;
    }
    const std::uint64_t one = 1;
    if (wake) [[maybe_unused]]
        const ssize_t n = ::write(e.wait_fd, &one, sizeof one);
}

void deliver(int fd)
{
    sock::Socket &s = at(fd);
    if (!sock::is_dual(s)) {
        sock::write_byte(s);
        return;
    }
    s.bytes.fetch_add(1);
    post(fd, POLLIN | POLLRDNORM);
}

void deliver_behind_nothing(int fd)
{
    at(fd).bytes.fetch_add(1);
    post(fd, POLLIN | POLLRDNORM | sock::kNothingBefore);
}

bool consume(int fd)
{
    char byte = 0;
    if (::read(fd, &byte, 1) == 1)
        return true;
    int bytes = at(fd).bytes.load();
    while (bytes > 0 && !at(fd).bytes.compare_exchange_weak(bytes, bytes - 1)) {
    }
    return bytes > 0;
}

void set_full(int fd, bool full)
{
    at(fd).full.store(full);
    if (!full)
        post(fd, POLLOUT | POLLWRNORM);
}

bool lift(int fd)
{
    sock::Socket &s = at(fd);
    if (s.pinned)
        return false;
    s.dual.store(true, std::memory_order_seq_cst);
    if (mux::became_dual(s))
        return true;
    sock::pin_to_kernel(s, "an epoll set can't follow");
    return false;
}

void give_up(int fd)
{
    const bool was_pinned = at(fd).pinned.load();
    sock::pin_to_kernel(at(fd), "test");
    at(fd).pinned.store(was_pinned);
}

bool is_pinned(int fd)
{
    return at(fd).pinned.load();
}

int open_set()
{
    return mux::epoll_created(::epoll_create1(EPOLL_CLOEXEC));
}

int dup_set(int epfd)
{
    const int copy = ::dup(epfd);
    mux::epoll_dup(epfd, copy);
    return copy;
}

void close_set(int epfd)
{
    mux::epoll_closed(epfd);
    ::close(epfd);
}

void count_signals(int number)
{
    struct sigaction action = {};
    action.sa_handler = on_signal;
    ::sigaction(number, &action, nullptr);
}

} // namespace vma::fake
