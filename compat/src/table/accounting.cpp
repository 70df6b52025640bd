// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/table/accounting.hpp"
#include "compat/src/base/addresses.hpp"
#include "compat/src/base/probes.hpp"
#include "compat/src/table/socket_sets.hpp"

#include <netinet/in.h>
#include <string.h>

#include <algorithm>

namespace vma::sock {

namespace {

using stats::Facts;
using stats::Group;
using stats::Way;

void raise_flag(Facts &f, std::uint32_t flag, bool on)
{
    __atomic_fetch_and(&f.flags, ~flag, __ATOMIC_RELAXED);
    if (on)
        __atomic_fetch_or(&f.flags, flag, __ATOMIC_RELAXED);
}

// A reader may see half of it, but always an end.
template <std::size_t kSize> void write_text(char (&out)[kSize], const char *text)
{
    const std::size_t length = std::min(strlen(text), kSize - 1);
    memcpy(out, text, length);
    memset(out + length, 0, kSize - length);
}

void write_end(Facts &f, std::uint32_t flag, std::uint8_t (&address)[16], std::uint16_t &port, const sockaddr_in6 &a)
{
    memcpy(address, &a.sin6_addr, sizeof address);
    port = ntohs(a.sin6_port);
    f.family = IN6_IS_ADDR_V4MAPPED(&a.sin6_addr) ? 4 : 6;
    raise_flag(f, flag, true);
}

const char *device_of(const Socket &s)
{
    return protocol(s).device_name(s);
}

Way way_of(const Socket &s)
{
    return protocol(s).way(s);
}

stats::RingKind kind_of(Way way)
{
    switch (way) {
    case Way::kPort:
        return stats::RingKind::kEthernet;
    case Way::kRdma:
        return stats::RingKind::kRdma;
    default:
        return stats::RingKind::kLocal;
    }
}

} // namespace

int by_os_sent(const Socket &s, const mmsghdr *messages, int n)
{
    ssize_t bytes = 0;
    for (int i = 0; i < n; ++i)
        bytes += messages[i].msg_len;
    libc::note_kernel_act();
    stats::os_sent(record_of(s), n < 0 ? -1 : bytes, static_cast<std::uint64_t>(std::max(n, 0)));
    stats::touch();
    return n;
}

int by_os_received(const Socket &s, const mmsghdr *messages, int n, int flags)
{
    ssize_t bytes = 0;
    for (int i = 0; i < n; ++i)
        bytes += messages[i].msg_len;
    libc::note_kernel_act();
    if (n < 0 || (flags & (MSG_PEEK | MSG_ERRQUEUE)) == 0)
        stats::os_received(record_of(s), n < 0 ? -1 : bytes, static_cast<std::uint64_t>(std::max(n, 0)));
    stats::touch();
    return n;
}

void accounting_after_fork_in_child()
{
    g_sockets.facts_lock.reset();
}

void open_record(Socket &s, int fd, int protocol, int family)
{
    stats::Slot &slot =
        stats::claim(fd, static_cast<std::uint8_t>(protocol), family == AF_INET6 ? 6 : 4, is_nonblocking(s));
    s.record.store(&slot, std::memory_order_release);
    stats::touch();
}

void close_record(Socket &s)
{
    stats::Slot &slot = record_of(s);
    if (&slot == &stats::g_nobodys.sink)
        return;
    stats::dump_to_file(slot);
    s.record.store(&stats::g_nobodys.sink, std::memory_order_release);
    stats::give_back(slot);
}

void tell_way(Socket &s)
{
    const LockGuard guard(g_sockets.facts_lock);
    stats::Slot &record = record_of(s);
    Facts &f = record.facts;
    const char *const reason = s.kernel_reason;
    write_text(f.reason, reason != nullptr ? reason : "");
    write_text(f.device, offloaded(s) ? device_of(s) : "");
    const bool pinned = s.mode.load(std::memory_order_relaxed) == Mode::kKernel;
    const Way way = offloaded(s) ? way_of(s) : pinned ? Way::kPinned : Way::kKernel;
    stats::set(f.way, way);
    if (offloaded(s))
        stats::use_ring(record, kind_of(way), protocol(s).queue_name(s));
}

void tell_migration(Socket &s)
{
    stats::migrated(record_of(s));
    tell_way(s);
    if (offloaded(s))
        probe::offload(s.any_fd.load(std::memory_order_relaxed), static_cast<int>(way_of(s)), device_of(s));
}

void tell_peer_user(const Socket &s, uid_t user)
{
    const LockGuard guard(g_sockets.facts_lock);
    Facts &f = record_of(s).facts;
    f.peer_user = user;
    raise_flag(f, stats::kOtherUser, true);
}

void tell_by_vmad(const Socket &s, bool asked)
{
    const LockGuard guard(g_sockets.facts_lock);
    raise_flag(record_of(s).facts, stats::kByVmad, asked);
}

void tell_addresses(const Socket &s)
{
    const LockGuard guard(g_sockets.facts_lock);
    Facts &f = record_of(s).facts;
    write_end(f, stats::kHasLocal, f.local, f.local_port, s.addresses.local);
    write_end(f, stats::kHasPeer, f.peer, f.peer_port, s.addresses.peer);
    f.tcp_state = 1; // ESTABLISHED
    raise_flag(f, stats::kCandidate, true);
}

void tell_local_address(const Socket &s, int fd)
{
    Facts &f = record_of(s).facts;
    sockaddr_in6 address = {};
    const bool bound = read_address(fd, Side::kLocal, address) && address.sin6_port != 0;
    sockaddr_in6 peer = {};
    const bool connected = read_address(fd, Side::kPeer, peer);
    const LockGuard guard(g_sockets.facts_lock);
    if (bound)
        write_end(f, stats::kHasLocal, f.local, f.local_port, address);
    if (connected)
        write_end(f, stats::kHasPeer, f.peer, f.peer_port, peer);
    else
        raise_flag(f, stats::kHasPeer, false);
}

// One that never receives by a device is not offloaded.
void tell_sender(const Socket &s, int fd, bool by_port, const char *device)
{
    Facts &f = record_of(s).facts;
    if (stats::get(f.way) != Way::kKernel)
        return;
    const Way way = by_port ? Way::kPort : Way::kLocal;
    tell_local_address(s, fd);
    const LockGuard guard(g_sockets.facts_lock);
    write_text(f.device, device);
    stats::set(f.way, way);
    stats::use_ring(record_of(s), kind_of(way), device);
}

void tell_limit(const Socket &s, std::size_t bytes)
{
    stats::set(record_of(s).facts.receive_limit, std::uint64_t{bytes});
}

void tell_loop(const Socket &s, bool on)
{
    raise_flag(record_of(s).facts, stats::kMulticastLoop, on);
}

void tell_blocking(const Socket &s, bool blocking)
{
    raise_flag(record_of(s).facts, stats::kNonblocking, !blocking);
}

// ---- groups ---------------------------------------------------------------------------------------------------------

namespace {

struct Membership {
    bool joins = false;
    bool leaves = false;
    Group group = {};
};

void put_v4(Group &group, const in_addr &address)
{
    const in6_addr wide = mapped(address);
    memcpy(group.address, &wide, sizeof group.address);
}

bool read_v4(int name, const void *value, socklen_t len, Membership &m)
{
    m.joins = name == IP_ADD_MEMBERSHIP || name == IP_ADD_SOURCE_MEMBERSHIP;
    m.leaves = name == IP_DROP_MEMBERSHIP;
    if ((!m.joins && !m.leaves) || len < sizeof(in_addr))
        return false;
    in_addr address = {}; // of ip_mreq, ip_mreqn and ip_mreq_source the first word
    memcpy(&address, value, sizeof address);
    put_v4(m.group, address);
    return true;
}

bool read_v6(int name, const void *value, socklen_t len, Membership &m)
{
    ipv6_mreq request = {};
    m.joins = name == IPV6_JOIN_GROUP;
    m.leaves = name == IPV6_LEAVE_GROUP;
    if ((!m.joins && !m.leaves) || len < sizeof request)
        return false;
    memcpy(&request, value, sizeof request);
    memcpy(m.group.address, &request.ipv6mr_multiaddr, sizeof m.group.address);
    m.group.interface = request.ipv6mr_interface;
    return true;
}

bool read_either(int name, const void *value, socklen_t len, Membership &m)
{
    group_req request = {};
    m.joins = name == MCAST_JOIN_GROUP || name == MCAST_JOIN_SOURCE_GROUP;
    m.leaves = name == MCAST_LEAVE_GROUP;
    if ((!m.joins && !m.leaves) || len < sizeof request)
        return false;
    memcpy(&request, value, sizeof request); // group_source_req begins with the same
    sockaddr_in6 address = {};
    if (!to_v6(&request.gr_group, address))
        return false;
    memcpy(m.group.address, &address.sin6_addr, sizeof m.group.address);
    m.group.interface = request.gr_interface;
    return true;
}

void change_groups(Facts &f, const Membership &m)
{
    const std::uint32_t count = std::min(f.group_count, stats::kMostGroups);
    Group *const end = f.groups + count;
    Group *const known = std::find_if(f.groups, end, [&m](const Group &one) {
        return memcmp(one.address, m.group.address, sizeof one.address) == 0;
    });
    if (m.joins && known == end && count < stats::kMostGroups) {
        *known = m.group;
        stats::set(f.group_count, count + 1);
    } else if (m.leaves && known != end) {
        *known = end[-1];
        stats::set(f.group_count, count - 1);
    }
}

void tell_interface(Facts &f, const void *value, socklen_t len)
{
    in_addr address = {}; // alone, of ip_mreq or of ip_mreqn: then the second word
    if (len < sizeof address)
        return;
    memcpy(&address, static_cast<const std::uint8_t *>(value) + (len >= sizeof(ip_mreq) ? sizeof address : 0),
           sizeof address);
    const in6_addr wide = mapped(address);
    memcpy(f.interface_address, &wide, sizeof f.interface_address);
    raise_flag(f, stats::kHasInterface, address.s_addr != INADDR_ANY);
}

} // namespace

void tell_option(const Socket &s, int level, int name, const void *value, socklen_t len)
{
    const LockGuard guard(g_sockets.facts_lock);
    Facts &f = record_of(s).facts;
    if (level == IPPROTO_IP && name == IP_MULTICAST_IF)
        tell_interface(f, value, len);
    Membership m;
    const bool v4 = level == IPPROTO_IP;
    if (read_either(name, value, len, m) || (v4 ? read_v4(name, value, len, m) : read_v6(name, value, len, m)))
        change_groups(f, m);
}

} // namespace vma::sock
