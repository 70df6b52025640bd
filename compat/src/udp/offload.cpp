// SPDX-License-Identifier: BSD-2-Clause
// How a UDP socket comes to take datagrams by the endpoint, and how it goes back to the kernel alone. It is the wish of
// a sender that offloads it: a socket without accelerated senders stays what it was.
#include <errno.h>
#include <linux/net_tstamp.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "compat/src/base/addresses.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/places.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/offload/turn.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/sharing/holders.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/uring.hpp"
#include "compat/src/transport/exception.hpp"
#include "compat/src/udp/rules.hpp"

namespace vma::sock::udp {

namespace {

Wanted read_wanted(int fd, sa_family_t family)
{
    Wanted w;
    w.timestamp = is_on(fd, SOL_SOCKET, SO_TIMESTAMP);
    w.timestamp_ns = is_on(fd, SOL_SOCKET, SO_TIMESTAMPNS);
    w.timestamping = is_on(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE) &&
                     is_on(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE);
    w.hardware = is_on(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_RAW_HARDWARE);
    w.overflows = is_on(fd, SOL_SOCKET, SO_RXQ_OVFL);
    w.packet_info = is_on(fd, IPPROTO_IP, IP_PKTINFO);
    w.ttl = is_on(fd, IPPROTO_IP, IP_RECVTTL);
    w.tos = is_on(fd, IPPROTO_IP, IP_RECVTOS);
    if (family == AF_INET6) {
        w.packet_info6 = is_on(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO);
        w.hop_limit6 = is_on(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT);
        w.traffic_class6 = is_on(fd, IPPROTO_IPV6, IPV6_RECVTCLASS);
    }
    w.any = w.timestamp || w.timestamp_ns || w.timestamping || w.hardware || w.overflows || w.packet_info || w.ttl ||
            w.tos || w.packet_info6 || w.hop_limit6 || w.traffic_class6;
    return w;
}

std::size_t receive_buffer(int fd)
{
    const int bytes = libc::read_option(fd, SOL_SOCKET, SO_RCVBUF, 0);
    return std::max<std::size_t>(static_cast<std::size_t>(bytes), config::params().rx_bytes_min);
}

void read_peer(int fd, State &u)
{
    sockaddr_in6 peer = {};
    u.connected = read_address(fd, Side::kPeer, peer);
    u.peer = peer.sin6_addr;
    u.peer_port = peer.sin6_port;
}

// What comes by ports comes on the main ring.
void take_ring(Socket &s)
{
    const LockGuard rx(s.rx_lock);
    if (ports_are_named())
        return;
    enter_datagram_ring(s);
    state_of(s).on_ring = true;
}

// rx_lock held
void give_ring_back(Socket &s)
{
    if (std::exchange(state_of(s).on_ring, false))
        leave_ring(s);
}

// A datagram that finds none would be lost.
bool reserve_queue(Socket &s)
{
    const LockGuard rx(s.rx_lock);
    engine_exclude_polling(true, ring_of(s));
    const bool reserved = state_of(s).queue.reserve();
    engine_exclude_polling(false, ring_of(s));
    return reserved;
}

void become_offloaded(Socket &s, int fd)
{
    take_ring(s);
    read_options(s, fd);
    s.kernel_news.store(true, std::memory_order_relaxed);
    state_of(s).kernel_error.note(); // perhaps
    hear_of_errors(s, fd);
    s.mode.store(Mode::kOffloaded, std::memory_order_seq_cst);
    const bool has_queue = reserve_queue(s);
    if (!has_queue || !kMultiplexers.became_offloaded(s)) {
        udp::fall_back(s, true);
        if (has_queue && s.mux.shared.load(std::memory_order_relaxed)) {
            state_of(s).seen = generation() - 1; // asks again
            return;
        }
        if (has_queue)
            refuse_offload(s, "an epoll set of it can't follow");
        else
            refuse_offload(s, "no memory for its queue");
        return;
    }
    s.told = true;
    list(s);
    kick_sleepers();
    const LockGuard rx(s.rx_lock);
    s.ready_due.store(true, std::memory_order_seq_cst);
    publish_if_due(s);
}

void offload_locked(Socket &s, int fd, bool asked)
{
    State &u = state_of(s);
    if (s.mode.load(std::memory_order_acquire) != Mode::kKernelOnly || s.pinned.load(std::memory_order_relaxed) ||
        rings_keep(s))
        return;
    if (!open_offers()) {
        refuse_offload(s, "the directory of names can't be used");
        return;
    }
    const std::uint32_t now = generation();
    u.seen = now;
    const bool by_port = find_ports(s);
    if ((u.identity.inode == 0 && !identify(fd, u.identity)) || (asked && !by_port && !is_wished(u.identity)))
        return;
    u.is_unnamed.store(!may_come_from_here(u, fd), std::memory_order_relaxed);
    if (u.is_unnamed.load(std::memory_order_relaxed) && !by_port)
        return;
    if (!hold_alone(s) || !kMultiplexers.may_follow(s)) {
        u.seen = now - 1; // ask again: nobody tells when the other holder is gone
        return;
    }
    if (engine_start_datagrams())
        become_offloaded(s, fd);
    else {
        u.seen = now - 1; // asks again when the provider is loaded
        refuse_without_engine(s);
    }
    if (by_port && offloaded(s))
        attach_ports(s, fd);
    if (offloaded(s) && u.is_unnamed.load(std::memory_order_relaxed) && !is_on_port(u)) {
        udp::fall_back(s, true); // the rules leave nothing to it
        u.port_tried.store(true, std::memory_order_relaxed);
    }
    if (!offloaded(s))
        return;
    tell_local_address(s, fd);
    tell_migration(s);
}

// Asking for other holders costs system calls.
bool is_look_due(const Socket &s)
{
    constexpr std::uint32_t kOperationsPerLook = 8;
    return s.operations.load(std::memory_order_relaxed) % kOperationsPerLook == 0 ||
           state_of(s).look_is_due.load(std::memory_order_relaxed);
}

// Nothing that was sent before the name vanished is on its way any more.
void take_the_last(const Socket &s)
{
    if (state_of(s).cookie.load(std::memory_order_relaxed) != 0)
        engine_drain(ring_of(s));
}

} // namespace

const char *name_of(int fd, char (&out)[kNameMax])
{
    sockaddr_in6 local = {};
    char text[kAddressText];
    read_address(fd, Side::kLocal, local);
    std::snprintf(out, sizeof out, "fd=%d UDP %s", fd, print_address(local, text));
    return out;
}

void read_options(Socket &s, int fd)
{
    State &u = state_of(s);
    const Wanted wanted = read_wanted(fd, u.family);
    const LockGuard rx(s.rx_lock);
    engine_exclude_polling(true, ring_of(s));
    u.wanted = wanted;
    u.tells_losses = wanted.overflows;
    if (wanted.overflows)
        learn_kernel_losses(u, fd);
    u.queue.set_limit(receive_buffer(fd));
    tell_limit(s, receive_buffer(fd));
    read_peer(fd, u);
    if (u.connected || is_on(fd, IPPROTO_IP, IP_RECVERR) ||
        (u.family == AF_INET6 && is_on(fd, IPPROTO_IPV6, IPV6_RECVERR)))
        u.hears_errors.store(true, std::memory_order_relaxed);
    for (Verdict &verdict : u.verdicts)
        verdict = {};
    engine_exclude_polling(false, ring_of(s));
}

bool wants_offload(Socket &s)
{
    const State &u = state_of(s);
    const std::uint32_t operations = s.operations.load(std::memory_order_relaxed);
    return operations >= config::params().lift_after && (u.seen != generation() || may_attach_port(s)) &&
           ((!may_be_shared(s) && !s.mux.shared.load(std::memory_order_relaxed)) || is_look_due(s));
}

namespace {

// Where another thread has the lock it is the next operation's.
void try_to_offload(Socket &s, int fd, bool asked, Patience patience)
{
    const int saved = errno;
    const bool may_look = !sandboxed() && may_offload_beside_rings(s);
    const Turn turn = may_look ? open_in_turn([&] { offload_locked(s, fd, asked); }, patience) : Turn::kStaysAsIs;
    state_of(s).look_is_due.store(turn == Turn::kNotNow, std::memory_order_relaxed);
    errno = saved;
}

} // namespace

void offload(Socket &s, int fd)
{
    try_to_offload(s, fd, true, patience_asked_for());
}

bool offload_to_pace(Socket &s, int fd)
{
    if (!offloaded(s) && is_look_due(s))
        try_to_offload(s, fd, false, Patience::kWaits); // the kernel would send at any rate
    return offloaded(s);
}

void offload_unasked(Socket &s, int fd)
{
    offload_locked(s, fd, false);
}

void publish_if_due(Socket &s)
{
    State &u = state_of(s);
    if (s.blocked_receivers.load(std::memory_order_seq_cst) != 0 ||
        !s.ready_due.exchange(false, std::memory_order_acq_rel))
        return;
    if (u.tells_losses) // no call of before is under way: the program was told no more than the kernel says now
        learn_kernel_losses(u, s.any_fd.load(std::memory_order_relaxed));
    const auto cookie = static_cast<std::uint32_t>(random_cookie()) | 1;
    u.cookie.store(cookie, std::memory_order_release);
    if (u.is_unnamed.load(std::memory_order_relaxed))
        return;
    const Target target = {this_process(), datagram_port_of(s), s.index, cookie};
    u.named.store(publish_name(u.identity, target), std::memory_order_relaxed);
    char name[kNameMax];
    const int fd = s.any_fd.load(std::memory_order_relaxed);
    VMA_LOG(kDetails, "%s: accelerated: device local, after %u sends and receives", name_of(fd, name),
            s.operations.load(std::memory_order_relaxed));
}

void withdraw(Socket &s)
{
    State &u = state_of(s);
    const LockGuard rx(s.rx_lock);
    s.ready_due.store(false, std::memory_order_release);
    if (u.named.exchange(false, std::memory_order_relaxed))
        withdraw_name(u.identity);
}

void fall_back(Socket &s, bool keep_unread)
{
    State &u = state_of(s);
    if (!offloaded(s))
        return;
    withdraw(s);
    if (keep_unread)
        take_the_last(s);
    s.tx_lock.lock();
    s.rx_lock.lock();
    const RingMask ring = ring_of(s);
    engine_exclude_polling(true, ring);
    detach_ports(u);
    u.port_tried.store(false, std::memory_order_relaxed);
    u.cookie.store(0, std::memory_order_release);
    const bool left = keep_unread && (!u.queue.empty() || has_shared(s));
    if (left)
        u.queue.own_loans(); // a child has no memory of its parent's
    if (!left) {
        u.queue.release();
        drop_shared(s);
        forget_queued(s);
        s.kernel_news = false;
        s.mode.store(mode_without_endpoint(s), std::memory_order_release);
    }
    engine_exclude_polling(false, ring);
    if (!left)
        give_ring_back(s);
    s.rx_lock.unlock();
    s.tx_lock.unlock();
    if (left)
        return; // offloaded until it is read
    s.operations.store(0, std::memory_order_relaxed);
    tell_migration(s);
    kMultiplexers.became_kernel_only(s);
}

void finish_fall_back(Socket &s)
{
    const State &u = state_of(s);
    if (!offloaded(s) || s.ready_due.load(std::memory_order_acquire) || u.cookie.load(std::memory_order_acquire) != 0 ||
        !u.queue.empty() || has_shared(s))
        return;
    sock::fall_back(s, true);
}

void list(Socket &s)
{
    State &u = state_of(s);
    if (u.listed)
        return;
    u.listed = true;
    u.prev_listed = nullptr;
    u.next_listed = g_offload.listed;
    if (u.next_listed != nullptr)
        state_of(*u.next_listed).prev_listed = &s;
    g_offload.listed = &s;
    engine_update_active();
}

void unlist(Socket &s)
{
    State &u = state_of(s);
    if (!u.listed)
        return;
    u.listed = false;
    if (u.next_listed != nullptr)
        state_of(*u.next_listed).prev_listed = u.prev_listed;
    if (u.prev_listed != nullptr)
        state_of(*u.prev_listed).next_listed = u.next_listed;
    else
        g_offload.listed = u.next_listed;
    engine_update_active();
}

} // namespace vma::sock::udp
