// SPDX-License-Identifier: BSD-2-Clause
// SocketXtreme (VMA_SOCKETXTREME=1): each poll reads the sockets that had something lately, and asks the ring's epoll set for others. What
// is edge-triggered there has been read until nothing was left before it is forgotten here.
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "compat/src/config/params.hpp"
#include "compat/src/extra/calls.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/extra/packets.hpp"
#include "compat/src/extra/receive.hpp"
#include "compat/src/extra/ring.hpp"
#include "compat/src/extra/spin.hpp"
#include "compat/src/extra/state.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/mux.hpp"

namespace vma::extra {

namespace {

constexpr std::uint32_t kRounds = 8;        // of looks in a poll that finds nothing: less time for what is around them
constexpr std::uint32_t kPollsPerLook = 32; // at the set, while there are sockets that had something lately
constexpr std::uint32_t kIdleMost = 100000; // polls that found nothing of a socket
constexpr std::size_t kMostBytes = 65535;   // of a packet: its length has 16 bits
constexpr std::size_t kMostHot = 1024;
constexpr std::uint32_t kSpares = 32; // packets that are reserved at a time
constexpr std::int64_t kSecond = 1'000'000'000;

struct Hot {
    sock::Socket *socket;
    std::uint32_t generation;
    int fd;
    std::uint32_t idle;
    bool by_kernel; // what the kernel has of it is not read to its end
};

constinit SpinLock g_lock; // guards all below
constinit Hot g_hot[kMostHot] = {};
constinit std::size_t g_hot_count = 0;
constinit std::size_t g_turn = 0;
constinit std::uint32_t g_polls = 0;
alignas(64) std::uint8_t g_room[kMostBytes + 1]; // for what the kernel brings
constinit Arrival g_arrival;
constinit Packet *g_spare = nullptr;
constinit AcceptCall g_accept = nullptr;

int not_on(const char *call)
{
    static constinit std::atomic<bool> said{false};
    return unsupported(said, call, "VMA_SOCKETXTREME=1 was not set when the program started");
}

bool is_on()
{
    return config::params().socketxtreme;
}

epoll_event wish_of(const sock::Socket &s, int fd)
{
    epoll_event event = {};
    event.events = EPOLLET | EPOLLIN | (sock::is_udp(s) ? 0U : EPOLLOUT | EPOLLRDHUP);
    event.data.u64 =
        static_cast<std::uint64_t>(s.generation.load(std::memory_order_acquire)) << 32 | static_cast<std::uint32_t>(fd);
    return event;
}

// What is written of each completion: the rest is the caller's.
struct Output {
    vma_completion_t *at;
    vma_completion_t *end;

    bool is_full() const { return at == end; }
    vma_completion_t &next()
    {
        *at = {};
        return *at++;
    }
};

void put_event(Output &out, const sock::Socket &s, int fd, std::uint64_t events)
{
    vma_completion_t &made = out.next();
    made.events = events;
    made.user_data = user_data_of(s, fd);
}

void put_source(vma_completion_t &made, const in6_addr &address, std::uint16_t port)
{
    made.src.sin_family = AF_INET;
    made.src.sin_port = port;
    memcpy(&made.src.sin_addr, &address.s6_addr[12], sizeof made.src.sin_addr);
}

vma_completion_t &put_packet(Output &out, const sock::Socket &s, int fd, Packet &packet)
{
    vma_completion_t &made = out.next();
    made.packet.num_bufs = 1;
    made.packet.total_len = packet.buffer.len;
    made.packet.buff_lst = &packet.buffer;
    made.events = VMA_SOCKETXTREME_PACKET;
    made.user_data = user_data_of(s, fd);
    return made;
}

Packet *take_spare()
{
    if (g_spare == nullptr)
        g_spare = reserve_packets(kSpares);
    return std::exchange(g_spare, g_spare->next);
}

// What came, as a packet: lent, or a copy of what is in g_room. nullptr: no memory.
Packet *packet_of(sock::Socket &s, Arrival &arrival, std::size_t length)
{
    if (arrival.count == 0 && length <= kPacketRoom) [[likely]] {
        Packet *const packet = take_spare();
        memcpy(packet->room, g_room, length);
        hold_own(*packet, s, length);
        return packet;
    }
    if (arrival.count == 0)
        arrival.loans[0] = sock::lend_copy(g_room, length);
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

void put_datagram(Output &out, sock::Socket &s, int fd, const msghdr &message, std::size_t length)
{
    Packet *const packet = packet_of(s, g_arrival, length);
    if (packet == nullptr)
        return; // it is lost, as one that the kernel has no memory for
    vma_completion_t &made = put_packet(out, s, fd, *packet);
    const std::int64_t stamp = g_arrival.about.hardware_ns;
    if (message.msg_name == nullptr)
        put_source(made, g_arrival.about.source, g_arrival.about.source_port);
    else if (message.msg_namelen >= sizeof(sockaddr_in))
        memcpy(&made.src, message.msg_name, sizeof made.src);
    if (message.msg_name == nullptr && stamp != 0)
        made.packet.hw_timestamp = {static_cast<time_t>(stamp / kSecond), static_cast<long>(stamp % kSecond)};
}

Served put_bytes(Output &out, sock::Socket &s, int fd, std::size_t length)
{
    Packet *const packet = packet_of(s, g_arrival, length);
    if (packet == nullptr) { // bytes of a stream can't be lost without a word
        errno = ENOMEM;
        return tell_end(out, s, fd, -1);
    }
    vma_completion_t &made = put_packet(out, s, fd, *packet);
    put_source(made, s.addresses.peer.sin6_addr, s.addresses.peer.sin6_port);
    return Served::kSomething;
}

// One packet of it, if there is one.
Served serve(Output &out, sock::Socket &s, int fd, bool look_at_kernel)
{
    const bool datagram = sock::is_udp(s);
    if (is_full() || (look_at_kernel && !has_room_for_packets(s))) [[unlikely]]
        return Served::kNothing;
    iovec part = {g_room, kMostBytes};
    sockaddr_storage from;
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    g_arrival.most_bytes = kMostBytes;
    g_arrival.copied = kPacketRoom;
    g_arrival.count = 0;
    ssize_t n = glance(s, fd, message, g_arrival);
    if (n == -EAGAIN && !look_at_kernel) [[likely]]
        return Served::kNothing;
    if (n < 0) {
        message.msg_name = &from;
        message.msg_namelen = sizeof from;
        n = receive(s, fd, message, MSG_DONTWAIT, false, g_arrival);
        if (g_arrival.count != 0)
            message.msg_name = nullptr;
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
    if (g_accept == nullptr || libc::real.poll(&p, 1, 0) <= 0)
        return false;
    sockaddr_in peer = {};
    socklen_t size = sizeof peer;
    const int fd = g_accept(listener, reinterpret_cast<sockaddr *>(&peer), &size, 0);
    if (fd < 0)
        return false;
    const sock::Socket *const s = sock::lookup(fd);
    vma_completion_t &made = out.next();
    made.events = VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED;
    made.user_data = s != nullptr ? user_data_of(*s, fd) : static_cast<std::uint64_t>(fd);
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
    for (std::size_t i = 0; i < g_hot_count; ++i) {
        if (g_hot[i].socket == &s) {
            g_hot[i] = {&s, generation, fd, 0, true};
            return;
        }
    }
    if (g_hot_count < kMostHot)
        g_hot[g_hot_count++] = {&s, generation, fd, 0, true};
    else
        again(s, fd);
}

bool is_open(const Hot &hot)
{
    return hot.socket != nullptr && sock::lookup(hot.fd) == hot.socket &&
           hot.socket->generation.load(std::memory_order_acquire) == hot.generation;
}

// A turn around those that had something lately.
void serve_hot(Output &out)
{
    for (std::size_t left = g_hot_count; left != 0 && !out.is_full(); --left) {
        g_turn = g_turn < g_hot_count ? g_turn : 0;
        Hot &hot = g_hot[g_turn];
        const Served served = is_open(hot) ? serve(out, *hot.socket, hot.fd, hot.by_kernel) : Served::kOver;
        hot.idle = served == Served::kSomething ? 0 : hot.idle + 1;
        hot.by_kernel &= served == Served::kSomething;
        const bool plain = served == Served::kNothing && !sock::dual(*hot.socket);
        if (served == Served::kOver || plain || hot.idle > kIdleMost)
            hot = g_hot[--g_hot_count]; // an edge of the set brings it back
        else
            ++g_turn;
    }
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
    const bool datagram = sock::is_udp(*s);
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
    if ((edge.events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) != 0 &&
        serve(out, *s, fd, true) == Served::kSomething)
        warm_up(*s, fd);
    if (own != 0 && out.at != first)
        first->events |= own;
    else if ((own & EPOLLOUT) != 0)
        put_event(out, *s, fd, own);
}

} // namespace

void set_accept(AcceptCall call)
{
    g_accept = call;
}

void ring_after_fork_in_child()
{
    g_lock.reset();
    g_hot_count = 0;
    g_spare = nullptr; // all packets are free there
}

void follow(int fd)
{
    if (!is_on())
        return;
    const sock::Socket *const s = sock::lookup(fd);
    const int set = s != nullptr ? ring() : -1;
    if (set < 0)
        return;
    epoll_event event = wish_of(*s, fd);
    mux::epoll_control(set, EPOLL_CTL_ADD, fd, &event);
}

int socketxtreme_poll(int set, vma_completion_t *completions, unsigned count, int)
{
    if (!is_on())
        return not_on("socketxtreme_poll");
    if (!is_ring(set))
        return fail(EBADFD);
    if (completions == nullptr || count == 0)
        return fail(EINVAL);
    const SpinGuard guard(g_lock);
    Output out = {completions, completions + count};
    for (std::uint32_t round = 0; round < kRounds && g_hot_count != 0 && out.at == completions; ++round)
        serve_hot(out);
    if (!out.is_full() && (g_hot_count == 0 || ++g_polls % kPollsPerLook == 0)) {
        epoll_event edges[16];
        const int most = static_cast<int>(std::min<std::ptrdiff_t>(std::size(edges), out.end - out.at));
        const int n = mux::epoll_wait_ms(set, edges, most, 0, nullptr);
        for (int i = 0; i < n; ++i)
            put_edge(out, edges[i]);
        if (out.at == completions)
            ::sched_yield(); // who polls in a loop leaves the peer its turn where processors are few
    }
    return static_cast<int>(out.at - completions);
}

int socketxtreme_free_packets(vma_packet_desc_t *packets, int count)
{
    if (!is_on())
        return not_on("socketxtreme_free_vma_packets");
    if (packets == nullptr || count < 0)
        return fail(EINVAL);
    for (int i = 0; i < count; ++i) {
        vma_buff_t *next = nullptr;
        for (vma_buff_t *buffer = packets[i].buff_lst; buffer != nullptr; buffer = next) {
            Packet *const packet = find_packet(buffer);
            if (packet == nullptr)
                return fail(EINVAL);
            next = buffer->next;
            drop(*packet);
        }
        packets[i].buff_lst = nullptr;
        packets[i].num_bufs = 0;
    }
    return 0;
}

int socketxtreme_ref(vma_buff_t *buffer)
{
    if (!is_on())
        return not_on("socketxtreme_ref_vma_buff");
    Packet *const packet = find_packet(buffer);
    const int refs = packet != nullptr ? add(*packet) : -1;
    return refs >= 0 ? refs : fail(EINVAL);
}

int socketxtreme_free(vma_buff_t *buffer)
{
    if (!is_on())
        return not_on("socketxtreme_free_vma_buff");
    Packet *const packet = find_packet(buffer);
    const int refs = packet != nullptr ? drop(*packet) : -1;
    return refs >= 0 ? refs : fail(EINVAL);
}

} // namespace vma::extra
