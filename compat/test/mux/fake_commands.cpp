// SPDX-License-Identifier: BSD-2-Clause
// What tests do to fake sockets, which are slots of an array.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "compat/src/libc/signals.hpp"
#include "compat/test/mux/fake_engine.hpp"

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
    ++libc::t_libc.signals.all;
    const std::uint64_t one = 1;
    if (libc::t_libc.signals.wake_fd >= 0) [[maybe_unused]]
        const ssize_t n = ::write(libc::t_libc.signals.wake_fd, &one, sizeof one);
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
        s.offloaded = false;
        notify(s, ~0U);
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

namespace {

void post_event(const Event &event)
{
    Engine &e = engine();
    bool wake = false;
    {
        sock::LockGuard guard(e.lock);
        e.queue.push_back(event);
        wake = e.armed;
        e.armed = false;
    }
    const std::uint64_t one = 1;
    if (wake) [[maybe_unused]]
        const ssize_t n = ::write(e.wait_fd, &one, sizeof one);
}

} // namespace

void post(int fd, std::uint32_t events)
{
    post_event({&at(fd), events});
}

void deliver_at_take(int fd)
{
    post_event({&at(fd), POLLIN | POLLRDNORM, 1});
}

void deliver(int fd)
{
    sock::Socket &s = at(fd);
    if (!sock::is_offloaded(s)) {
        write_byte(s);
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

bool offload(int fd)
{
    sock::Socket &s = at(fd);
    if (s.pinned)
        return false;
    s.offloaded.store(true, std::memory_order_seq_cst);
    if (mux::became_offloaded(s))
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
