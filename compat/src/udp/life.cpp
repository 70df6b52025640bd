// SPDX-License-Identifier: BSD-2-Clause
// From socket() to close(): the state's memory, connect() and the options.
#include <errno.h>
#include <linux/net_tstamp.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "compat/src/base/option_numbers.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/rendezvous/interface.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/sharing/peek_offset.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/socket_sets.hpp"
#include "compat/src/transport/exception.hpp"
#include "compat/src/udp/memberships.hpp"
#include "compat/src/udp/rules.hpp"
#include "compat/src/udp/shared.hpp"

namespace vma::sock::udp {

[[VMA_TABLE]] constinit Shared g_shared;

namespace {

constexpr std::size_t kStates = 64; // mapped at a time

State *new_state()
{
    const LockGuard guard(g_shared.fresh_lock);
    if (g_shared.fresh_count == 0) {
        void *const memory =
            ::mmap(nullptr, kStates * sizeof(State), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return nullptr;
        g_shared.fresh = static_cast<State *>(memory);
        g_shared.fresh_count = kStates;
    }
    --g_shared.fresh_count;
    return new (g_shared.fresh++) State;
}

// What an option makes of a socket.
enum class Effect {
    kNone,         // nothing that we have a part in, or it is read when it is needed
    kReceiving,    // what is told of a datagram, or how many may wait
    kSending,      // what a datagram carries
    kGroupSending, // where and how it sends to groups
    kMembership,   // which groups it is in
    kSentByKernel, // only the kernel can send so
    kKernel,       // only the kernel can do it
};

Effect effect_of_socket(int name)
{
    switch (name) {
    case SO_REUSEADDR:
    case SO_REUSEPORT:
    case SO_BROADCAST:
    case SO_SNDBUF:
    case SO_SNDBUFFORCE:
    case option::kReceiveTimeoutOld:
    case option::kSendTimeoutOld:
    case option::kReceiveTimeoutNew:
    case option::kSendTimeoutNew:
    case SO_KEEPALIVE:
    case SO_LINGER:
    case SO_PRIORITY:
    case SO_BUSY_POLL:
    case SO_INCOMING_CPU:
    case SO_ERROR:
    case SO_NO_CHECK:
        return Effect::kNone;
    case SO_RCVBUF:
    case SO_RCVBUFFORCE:
    case SO_TIMESTAMP:
    case SO_TIMESTAMPNS:
    case SO_RXQ_OVFL:
        return Effect::kReceiving;
    case SO_MARK:
    case SO_DONTROUTE:
    case SO_TXTIME:
    case SO_ZEROCOPY:
        return Effect::kSentByKernel;
    default:
        return Effect::kKernel;
    }
}

// The same of both families.
bool is_protocol_independent_membership(int name)
{
    switch (name) {
    case MCAST_JOIN_GROUP:
    case MCAST_LEAVE_GROUP:
    case MCAST_JOIN_SOURCE_GROUP:
    case MCAST_LEAVE_SOURCE_GROUP:
    case MCAST_BLOCK_SOURCE:
    case MCAST_UNBLOCK_SOURCE:
    case MCAST_MSFILTER:
        return true;
    default:
        return false;
    }
}

Effect effect_of_ipv4(int name)
{
    switch (name) {
    case IP_PKTINFO:
    case IP_RECVTTL:
    case IP_RECVTOS:
        return Effect::kReceiving;
    case IP_TTL:
    case IP_TOS:
        return Effect::kSending;
    case IP_MULTICAST_IF:
    case IP_MULTICAST_TTL:
    case IP_MULTICAST_LOOP:
        return Effect::kGroupSending;
    case IP_MULTICAST_ALL:
    case IP_ADD_MEMBERSHIP:
    case IP_DROP_MEMBERSHIP:
    case IP_ADD_SOURCE_MEMBERSHIP:
    case IP_DROP_SOURCE_MEMBERSHIP:
    case IP_BLOCK_SOURCE:
    case IP_UNBLOCK_SOURCE:
    case IP_MSFILTER:
        return Effect::kMembership;
    case IP_MTU_DISCOVER:
    case IP_RECVERR:
    case IP_FREEBIND:
    case IP_BIND_ADDRESS_NO_PORT:
    case IP_MTU:
        return Effect::kNone;
    case IP_OPTIONS:
    case IP_UNICAST_IF:
        return Effect::kSentByKernel;
    default:
        return Effect::kKernel;
    }
}

Effect effect_of_ipv6(int name)
{
    switch (name) {
    case IPV6_RECVPKTINFO:
    case IPV6_RECVHOPLIMIT:
    case IPV6_RECVTCLASS:
        return Effect::kReceiving;
    case IPV6_UNICAST_HOPS:
    case IPV6_TCLASS:
        return Effect::kSending;
    case IPV6_MULTICAST_IF:
    case IPV6_MULTICAST_HOPS:
    case IPV6_MULTICAST_LOOP:
        return Effect::kGroupSending;
    case kIpv6MulticastAll:
    case IPV6_JOIN_GROUP:
    case IPV6_LEAVE_GROUP:
        return Effect::kMembership;
    case IPV6_V6ONLY:
    case IPV6_MTU_DISCOVER:
    case IPV6_RECVERR:
    case IPV6_AUTOFLOWLABEL:
        return Effect::kNone;
    case IPV6_ADDR_PREFERENCES: // another source address, perhaps
    case IPV6_PKTINFO:
    case IPV6_HOPOPTS:
    case IPV6_RTHDR:
    case IPV6_DSTOPTS:
    case IPV6_UNICAST_IF:
        return Effect::kSentByKernel;
    default:
        return Effect::kKernel;
    }
}

// Time stamps of what is sent are the kernel's.
Effect effect_of_stamps(const void *value, socklen_t len)
{
    unsigned flags = 0;
    if (value == nullptr || len < sizeof flags)
        return Effect::kNone; // refused
    memcpy(&flags, value, sizeof flags);
    constexpr unsigned kOurs = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RX_HARDWARE |
                               SOF_TIMESTAMPING_RAW_HARDWARE;
    return (flags & ~kOurs) == 0 ? Effect::kReceiving : Effect::kKernel;
}

Effect effect_of(int level, int name, const void *value, socklen_t len)
{
    if (level == SOL_SOCKET && name == SO_TIMESTAMPING)
        return effect_of_stamps(value, len);
    if (level == SOL_SOCKET)
        return effect_of_socket(name);
    if ((level == IPPROTO_IP || level == IPPROTO_IPV6) && is_protocol_independent_membership(name))
        return Effect::kMembership;
    if (level == IPPROTO_IP)
        return effect_of_ipv4(name);
    if (level == IPPROTO_IPV6)
        return effect_of_ipv6(name);
    return level == IPPROTO_UDP && (name == UDP_CORK || name == UDP_SEGMENT) ? Effect::kSentByKernel : Effect::kKernel;
}

void clear_routes(State &u) // tx_lock held
{
    u.routes.clear();
    u.bounce.reset();
    u.used_memory.store(false, std::memory_order_relaxed);
}

void forget_routes(Socket &s)
{
    State &u = state_of(s);
    if (!u.used_memory.load(std::memory_order_relaxed))
        return;
    const LockGuard guard(s.tx_lock);
    clear_routes(u);
}

// The program's idea of it; ours of what the kernel has is the same again.
void note_group_option(State &u, int level, int name, const void *value, socklen_t len)
{
    const bool v4 = level == IPPROTO_IP;
    const int place = v4 ? 0 : 1;
    if (name == (v4 ? IP_MULTICAST_IF : IPV6_MULTICAST_IF))
        u.group_interface[place] = chosen_interface(level, value, len);
    if (name != (v4 ? IP_MULTICAST_LOOP : IPV6_MULTICAST_LOOP))
        return;
    unsigned char first = 0; // an int, or one byte
    int whole = 0;
    memcpy(&first, value, sizeof first);
    if (len >= sizeof whole)
        memcpy(&whole, value, sizeof whole);
    u.loops[place] = u.kernel_loops[place] = len >= sizeof whole ? whole != 0 : first != 0;
}

// A sender changes the same option of the kernel's (loop_in_kernel()): both as one.
int set_group_option(Socket &s, int fd, int level, int name, const void *value, socklen_t len)
{
    State &u = state_of(s);
    const LockGuard guard(s.tx_lock);
    const int result = libc::real.setsockopt(fd, level, name, value, len);
    if (result != 0)
        return result;
    note_group_option(u, level, name, value, len);
    tell_option(s, level, name, value, len);
    if (name == (level == IPPROTO_IP ? IP_MULTICAST_LOOP : IPV6_MULTICAST_LOOP))
        tell_loop(s, u.loops[level == IPPROTO_IP ? 0 : 1]);
    clear_routes(u);
    return 0;
}

// They look again who is in the group. It may be the first that this process has to do with others.
void tell_senders()
{
    g_offload.lock.lock();
    const bool opened = open_offers();
    g_offload.lock.unlock();
    if (opened)
        names_changed();
}

void take_loop_from_variable(State &u, int fd)
{
    const int off = 0;
    if (config::params().tx_mc_loopback)
        return;
    u.loops[0] = u.kernel_loops[0] = libc::real.setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof off) != 0;
    if (u.family == AF_INET6)
        u.loops[1] = u.kernel_loops[1] =
            libc::real.setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, &off, sizeof off) != 0;
}

} // namespace

void begin(Socket &s, int fd, int family)
{
    if (s.udp_memory == nullptr)
        s.udp_memory = new_state();
    State *const u = s.udp_memory;
    if (u == nullptr) {
        s.mode.store(Mode::kKernel, std::memory_order_release);
        return;
    }
    forget_routes(s); // of a call that was late when the socket was closed that had this place before
    u->family = static_cast<sa_family_t>(family);
    u->identity = {};
    u->seen = ~0U;
    u->sends_by_kernel = false;
    u->kernel_error.clear();
    u->hears_errors = false;
    u->cookie = 0;
    u->named = false;
    u->is_unnamed = false;
    u->wanted = {};
    u->tells_losses = false;
    u->connected = false;
    u->losses.clear();
    u->lends = false;
    u->kernel_brings = false;
    u->kernel_look = 0;
    u->ask_kernel_for_room = false;
    u->has_wire_groups = false;
    u->corked = false;
    u->peer_place = kNoPlace;
    u->port_count = 0;
    u->on_ring = false;
    u->sends_by = 0;
    u->port_tried = false;
    u->may_share = false;
    u->groups.reset();
    u->has_groups = false;
    u->arrival_tick = current_tick() - kMixedTicks;
    for (int place : {0, 1}) {
        u->group_interface[place] = 0;
        u->loops[place] = u->kernel_loops[place] = true;
    }
    take_loop_from_variable(*u, fd);
    s.udp.store(u, std::memory_order_release);
    s.protocol.store(&kProtocol, std::memory_order_release);
    tell_loop(s, u->loops[place_of(*u)]);
}

// A call of another thread that offloads it, or looks a route of it up, has done so before, or sees that it is closed.
void end(Socket &s)
{
    {
        const LockGuard guard(g_offload.lock);
        udp::fall_back(s, false);
        state_of(s).groups.reset();
        state_of(s).has_groups = false;
        s.mode.store(Mode::kFree, std::memory_order_release);
        unlist(s);
    }
    forget_routes(s);
    {
        const LockGuard guard(g_offload.lock);
        release_senders(state_of(s));
    }
    s.udp.store(nullptr, std::memory_order_release);
    s.protocol.store(&kStreamProtocol, std::memory_order_release);
}

namespace {

// The port takes other datagrams for it from now on: it is attached anew when the socket is offloaded again.
void leave_port(Socket &s)
{
    State &u = state_of(s);
    if (!is_on_port(u))
        return;
    const LockGuard offload(g_offload.lock);
    udp::fall_back(s, true);
}

} // namespace

// What has come by then is the program's, whoever sent it.
int connect(Socket &s, int fd, const sockaddr *address, socklen_t length)
{
    State &u = state_of(s);
    if (offloaded(s))
        engine_drain(ring_of(s));
    leave_port(s);
    const int result = libc::real.connect(fd, address, length);
    const int error = errno;
    u.peer_place.store(kNoPlace, std::memory_order_relaxed);
    forget_routes(s);
    if (result == 0) {
        u.hears_errors.store(true, std::memory_order_relaxed);
        tell_local_address(s, fd);
    }
    if (offloaded(s)) {
        read_options(s, fd);
        if (u.named.load(std::memory_order_relaxed))
            names_changed(); // other senders may mean it now
    }
    if (result == 0)
        follow_connection_rule(s, fd);
    errno = error;
    return result;
}

// Where the kernel's socket has another value than the program has given it.
int get_option(Socket &s, int fd, int level, int name, void *value, socklen_t *len)
{
    const int result = libc::real.getsockopt(fd, level, name, value, len);
    const bool v4 = level == IPPROTO_IP && name == IP_MULTICAST_LOOP;
    const bool v6 = level == IPPROTO_IPV6 && name == IPV6_MULTICAST_LOOP;
    if (result != 0 || (!v4 && !v6) || *len == 0)
        return result;
    const LockGuard guard(s.tx_lock);
    const int loops = state_of(s).loops[v4 ? 0 : 1] ? 1 : 0;
    memcpy(value, &loops, std::min<std::size_t>(*len, sizeof loops));
    return result;
}

int set_option(Socket &s, int fd, int level, int name, const void *value, socklen_t len)
{
    State &u = state_of(s);
    const Effect effect = effect_of(level, name, value, len);
    const Heir heir = level == SOL_SOCKET ? Heir::kLibrary : Heir::kAnybody;
    if (effect == Effect::kKernel && !admit_option(s, level, name, "an option that only the kernel can follow", heir))
        return -1;
    if (effect == Effect::kSentByKernel)
        u.sends_by_kernel.store(true, std::memory_order_relaxed);
    if (level == SOL_SOCKET && (name == SO_REUSEADDR || name == SO_REUSEPORT))
        u.may_share.store(true, std::memory_order_relaxed);
    if (effect == Effect::kGroupSending)
        return set_group_option(s, fd, level, name, value, len);
    const int result = set_in_kernel(s, fd, level, name, value, len);
    if (result != 0)
        return result;
    if ((level == IPPROTO_IP && name == IP_RECVERR) || (level == IPPROTO_IPV6 && name == IPV6_RECVERR))
        u.hears_errors.store(true, std::memory_order_relaxed);
    if (effect == Effect::kSending)
        forget_routes(s);
    if (effect == Effect::kMembership) {
        note_membership(state_of(s), level, name, value, len);
        follow_group_rule(s, fd);
        tell_option(s, level, name, value, len);
        tell_senders();
        wait_after_join(level, name);
    }
    if ((effect == Effect::kReceiving || effect == Effect::kMembership) && offloaded(s))
        read_options(s, fd);
    if (level == SOL_SOCKET && name == SO_TIMESTAMPING && effect == Effect::kReceiving && ports_lack_stamps(s))
        sock::fall_back(s, true); // it gets another try, without the port
    return result;
}

// The provider is another one here. What the tables of a socket held at this moment may be half of a change.
void after_fork_in_child()
{
    g_shared.fresh_lock.reset();
    g_offload.listed = nullptr;
    forget_endpoints();
    port_groups_after_fork_in_child();
    memberships_after_fork_in_child();
    g_engine.arrivals.direct = nullptr;
    diag_after_fork_in_child();
}

void after_fork_in_child(Socket &s)
{
    State &u = state_of(s);
    new (&u.routes) Routes;
    new (&u.bounce) std::unique_ptr<std::uint8_t[]>;
    u.used_memory = false;
    u.cookie = 0;
    u.named = false;
    u.port_count = 0;
    u.sends_by = 0;
    u.port_tried = false;
    u.on_ring = false;
    s.ring = 0;
    s.ring_bit = kMainRing;
    u.listed = false;
}

void withdraw_all()
{
    each_index(g_sockets.noted, [](std::uint32_t i) {
        Socket &s = *socket_by_index(i);
        State *const u = s.udp.load(std::memory_order_acquire);
        if (u == nullptr || s.mode.load(std::memory_order_acquire) == Mode::kFree)
            return;
        if (u->named.exchange(false, std::memory_order_relaxed))
            withdraw_name(u->identity);
        if (u->used_memory.load(std::memory_order_relaxed) && s.tx_lock.try_lock()) {
            u->routes.clear();
            s.tx_lock.unlock();
        }
    });
}

} // namespace vma::sock::udp

namespace vma::sock {

int connect_datagram(Socket &s, int fd, const sockaddr *address, socklen_t length)
{
    return udp::connect(s, fd, address, length);
}

} // namespace vma::sock
