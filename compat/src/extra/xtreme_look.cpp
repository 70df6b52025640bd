// SPDX-License-Identifier: BSD-2-Clause
// Streams, listeners, and what the kernel brings: each look reads those sockets that had something lately, and asks the
// ring's epoll set for others if it is told to. What is edge-triggered there has been read until nothing was left
// before it is forgotten here.
#include "compat/src/extra/xtreme_look.hpp"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include <algorithm>

#include "compat/src/base/spin_lock.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/extra/receive.hpp"
#include "compat/src/extra/ring.hpp"
#include "compat/src/extra/shared.hpp"
#include "compat/src/extra/state.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::extra {

namespace {

epoll_event wish_of(const sock::Socket &s, int fd)
{
    epoll_event event = {};
    event.events = EPOLLET | EPOLLIN | (sock::protocol(s).messages ? 0U : EPOLLOUT | EPOLLRDHUP);
    event.data.u64 =
        static_cast<std::uint64_t>(s.generation.load(std::memory_order_acquire)) << 32 | static_cast<std::uint32_t>(fd);
    return event;
}

void put_event(Output &out, const sock::Socket &s, int fd, std::uint64_t events)
{
    out.event(events, user_data_of(s, fd));
}

// What came: lent, or a copy of what is in g_tables.room. nullptr: no memory.
Packet *packet_of(sock::Socket &s, Arrival &arrival, std::size_t length)
{
    if (arrival.count == 0 && length <= kPacketRoom) {
        Packet *const packet = take_spare(g_tables.look_spare);
        if (packet != nullptr) {
            memcpy(packet->room, g_tables.room, length);
            hold_own(*packet, s, s.generation.load(std::memory_order_relaxed), length);
        }
        return packet;
    }
    if (arrival.count == 0)
        arrival.loans[0] = sock::lend_copy(g_tables.room, length);
    return arrival.loans[0].lender != nullptr ? &hold(s, arrival.loans[0]) : nullptr;
}

enum class Served { kSomething, kNothing, kOver };

// The end of a stream, or an error, is told once.
Served tell_end(Output &out, sock::Socket &s, int fd, ssize_t n)
{
    State *const state = n < 0 && errno == ENOTCONN ? nullptr : state_of(s);
    if (state == nullptr || state->end_told.exchange(true, std::memory_order_relaxed))
        return Served::kOver;
    put_event(out, s, fd, n == 0 ? EPOLLIN | EPOLLRDHUP : EPOLLERR | EPOLLHUP);
    return Served::kOver;
}

void put_name(vma_completion_t &made, const sockaddr_in6 &name)
{
    sockaddr_in v4 = {};
    memcpy(&v4, &name, sizeof v4);
    if (name.sin6_family == AF_INET)
        made.src = v4;
    else
        put_source(made, name.sin6_addr, name.sin6_port);
}

void put_datagram(Output &out, sock::Socket &s, int fd, const msghdr &message, std::size_t length)
{
    Packet *const packet = packet_of(s, g_xtreme.arrival, length);
    if (packet == nullptr)
        return; // it is lost, as one that the kernel has no memory for
    vma_completion_t &made = out.packet(*packet, user_data_of(s, fd));
    if (message.msg_namelen >= sizeof(sockaddr_in))
        put_name(made, *static_cast<const sockaddr_in6 *>(message.msg_name));
    put_hardware_time(made, g_xtreme.arrival.about.hardware_ns);
}

// Of a stream that nobody has looked at yet.
void put_kernels_peer(vma_completion_t &made, int fd)
{
    sockaddr_in6 peer = {};
    socklen_t size = sizeof peer;
    if (libc::real.getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &size) == 0)
        put_name(made, peer);
}

Served put_bytes(Output &out, sock::Socket &s, int fd, std::size_t length)
{
    Packet *const packet = packet_of(s, g_xtreme.arrival, length);
    if (packet == nullptr) { // bytes of a stream can't be lost without a word
        errno = ENOMEM;
        return tell_end(out, s, fd, -1);
    }
    vma_completion_t &made = out.packet(*packet, user_data_of(s, fd));
    if (s.addresses.peer.sin6_port != 0) [[likely]]
        put_source(made, s.addresses.peer.sin6_addr, s.addresses.peer.sin6_port);
    else
        put_kernels_peer(made, fd);
    return Served::kSomething;
}

// One packet of it, if there is one.
Served serve(Output &out, sock::Socket &s, int fd, bool look_at_kernel)
{
    const bool datagram = sock::protocol(s).messages;
    iovec part = {g_tables.room, kMostBytes};
    sockaddr_in6 from = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    g_xtreme.arrival.about.hardware_ns = 0; // what the kernel brings leaves it so
    g_xtreme.arrival.most_bytes = kMostBytes;
    g_xtreme.arrival.copied = kPacketRoom;
    g_xtreme.arrival.count = 0;
    ssize_t n = glance(s, fd, message, g_xtreme.arrival);
    if (n == -EAGAIN && !look_at_kernel) [[likely]]
        return Served::kNothing;
    if (n < 0) {
        message.msg_namelen = sizeof from;
        n = receive(s, fd, message, MSG_DONTWAIT, false, g_xtreme.arrival);
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) [[likely]]
        return Served::kNothing;
    if (n < 0 || (n == 0 && !datagram))
        return datagram ? Served::kNothing : tell_end(out, s, fd, n);
    if (!datagram)
        return put_bytes(out, s, fd, static_cast<std::size_t>(n));
    put_datagram(out, s, fd, message, static_cast<std::size_t>(n));
    return Served::kSomething;
}

bool is_listener(int fd)
{
    int on = 0;
    socklen_t size = sizeof on;
    return libc::real.getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &size) == 0 && on != 0;
}

// False: there is nobody to accept.
bool accept_one(Output &out, int listener)
{
    pollfd p = {listener, POLLIN, 0};
    if (g_api.accept == nullptr || libc::real.poll(&p, 1, 0) <= 0)
        return false;
    sockaddr_in peer = {};
    socklen_t size = sizeof peer;
    const int fd = g_api.accept(listener, reinterpret_cast<sockaddr *>(&peer), &size, 0);
    if (fd < 0)
        return false;
    const sock::Socket *const s = sock::lookup(fd);
    const std::uint64_t data = s != nullptr ? user_data_of(*s, fd) : static_cast<std::uint64_t>(fd);
    vma_completion_t &made = out.event(VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED, data);
    made.src = peer;
    made.listen_fd = listener;
    return true;
}

// It has more: the set is to say so once more.
void again(const sock::Socket &s, int fd)
{
    epoll_event event = wish_of(s, fd);
    mux::epoll_control(ring(), EPOLL_CTL_MOD, fd, &event);
}

void warm_up(sock::Socket &s, int fd)
{
    const std::uint32_t generation = s.generation.load(std::memory_order_acquire);
    const std::uint32_t count = hot_sockets();
    for (std::size_t i = 0; i < count; ++i) {
        if (g_tables.hot[i].socket == &s) {
            g_tables.hot[i] = {&s, generation, fd, 0, true};
            return;
        }
    }
    if (count == kMostHot)
        return again(s, fd);
    g_tables.hot[count] = {&s, generation, fd, 0, true};
    g_tables.hot_count.store(count + 1, std::memory_order_relaxed);
}

bool is_open(const Hot &hot)
{
    return hot.socket != nullptr && sock::lookup(hot.fd) == hot.socket &&
           hot.socket->generation.load(std::memory_order_acquire) == hot.generation;
}

// Whether it is worth the lock of its receiving side.
bool may_have_something(const Hot &hot)
{
    const sock::Socket &s = *hot.socket;
    const sock::Stream *const stream = sock::stream_of(s);
    const bool is_whole = stream != nullptr && !sock::transport(*stream).spans;
    if (hot.by_kernel || !sock::offloaded(s) || is_whole || sock::ring_of(s) != sock::kMainRing)
        return true;
    return sock::protocol(s).has_input(s);
}

bool kernel_has_something(int fd)
{
    pollfd p = {fd, POLLIN, 0};
    return libc::uncancelled::poll_now(&p, 1) > 0;
}

Served serve_one(Output &out, Hot &hot)
{
    if (!is_open(hot))
        return Served::kOver;
    // Or one that never runs out of datagrams by the endpoint would never be found to have none by the kernel.
    if (hot.by_kernel && sock::protocol(*hot.socket).messages && sock::offloaded(*hot.socket))
        hot.by_kernel = kernel_has_something(hot.fd);
    return may_have_something(hot) ? serve(out, *hot.socket, hot.fd, hot.by_kernel) : Served::kNothing;
}

// A turn around those that had something lately.
void serve_hot(Output &out)
{
    std::uint32_t count = hot_sockets();
    for (std::size_t left = count; left != 0 && !out.is_full() && !is_full(); --left) {
        g_tables.turn = g_tables.turn < count ? g_tables.turn : 0;
        Hot &hot = g_tables.hot[g_tables.turn];
        const Served served = serve_one(out, hot);
        hot.idle = served == Served::kSomething ? 0 : hot.idle + 1;
        hot.by_kernel &= served == Served::kSomething;
        const bool edge_tells =
            served == Served::kNothing && (sock::protocol(*hot.socket).messages || !sock::offloaded(*hot.socket));
        if (served == Served::kOver || edge_tells || hot.idle > kIdleMost)
            hot = g_tables.hot[--count]; // an edge of the set brings it back
        else
            ++g_tables.turn;
    }
    g_tables.hot_count.store(count, std::memory_order_relaxed);
}

// Of a socket that was never connected: not a word.
bool is_fresh(std::uint32_t events)
{
    return (events & ~static_cast<std::uint32_t>(EPOLLOUT)) == EPOLLHUP;
}

void put_edge(Output &out, const epoll_event &edge)
{
    const int fd = static_cast<int>(edge.data.u64 & 0xffffffff);
    sock::Socket *const s = sock::lookup(fd);
    if (s == nullptr || s->generation.load(std::memory_order_acquire) != edge.data.u64 >> 32 || is_fresh(edge.events))
        return;
    if (out.is_full()) {
        again(*s, fd);
        return;
    }
    const bool datagram = sock::protocol(*s).messages;
    if (!datagram && is_listener(fd)) {
        bool more = true;
        while (!out.is_full() && (more = accept_one(out, fd))) {
        }
        if (more)
            again(*s, fd);
        return;
    }
    const std::uint32_t own = datagram ? 0 : edge.events & (EPOLLOUT | EPOLLERR | EPOLLHUP);
    vma_completion_t *const first = out.at;
    if (!has_room_for_packets(*s)) [[unlikely]]
        warm_up(*s, fd); // until the program gives some back
    else if ((edge.events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) != 0 &&
             serve(out, *s, fd, true) == Served::kSomething)
        warm_up(*s, fd);
    if (own != 0 && out.at != first)
        first->events |= own;
    else if ((own & EPOLLOUT) != 0)
        put_event(out, *s, fd, own);
}

void ask_set(Output &out, DatagramSink &sink, int set)
{
    epoll_event edges[16];
    const int most = static_cast<int>(std::min<std::ptrdiff_t>(std::size(edges), out.end - out.at));
    sink.keep(1);               // a flood of datagrams leaves a place for what the set tells
    sock::udp::set_sink(&sink); // else what it takes from the queue would go round by the sockets
    const int n = mux::epoll_wait_ms(set, edges, most, 0, nullptr);
    sock::udp::set_sink(nullptr);
    sink.keep(0);
    for (int i = 0; i < n; ++i)
        put_edge(out, edges[i]);
}

} // namespace

std::uint32_t hot_sockets()
{
    return g_tables.hot_count.load(std::memory_order_relaxed);
}

void look_around(Output &out, DatagramSink &sink, int set, bool asks)
{
    const SpinGuard guard(g_tables.look_lock);
    if (asks)
        ask_set(out, sink, set);
    serve_hot(out);
}

[[VMA_AT_STARTUP]] void set_accept(AcceptCall call)
{
    g_api.accept = call;
}

void ring_after_fork_in_child()
{
    g_tables.look_lock.reset();
    g_tables.hot_count.store(0, std::memory_order_relaxed);
    g_tables.look_spare = nullptr; // all packets are free there
    sink_after_fork_in_child();
}

void follow(int fd)
{
    if (!config::params().socketxtreme)
        return;
    sock::Socket *const s = sock::lookup(fd);
    State *const state = s != nullptr ? state_of(*s) : nullptr;
    const int set = state != nullptr ? ring() : -1;
    if (set < 0)
        return;
    state->ring_fd.store(fd, std::memory_order_relaxed);
    epoll_event event = wish_of(*s, fd);
    mux::epoll_control(set, EPOLL_CTL_ADD, fd, &event);
}

} // namespace vma::extra
