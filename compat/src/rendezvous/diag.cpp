// SPDX-License-Identifier: BSD-2-Clause
// NETLINK_SOCK_DIAG (sock_diag(7)): asked for one UDP socket by addresses, the kernel answers what its receive path
// would find. A question takes some 4 us.
#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/base/addresses.hpp"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <unistd.h>

#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/once.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/rendezvous/interface.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/rendezvous/state.hpp"

#if !defined(SO_NETNS_COOKIE)
#define SO_NETNS_COOKIE 71 // Linux 5.14
#endif

namespace vma::sock {

[[VMA_TABLE]] constinit Rendezvous g_rendezvous;

} // namespace vma::sock

namespace vma::sock::udp {

namespace {

constexpr std::size_t kAnswerRoom = 2048;

struct Question {
    nlmsghdr header;
    inet_diag_req_v2 request;
};

int open_netlink()
{
    if (!g_rendezvous.netlink.has_value()) {
        const int fd = libc::real.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
        if (fd < 0)
            return -1;
        g_rendezvous.netlink = libc::make_private(fd);
        g_rendezvous.netlink_network = network_of(*g_rendezvous.netlink);
    }
    return *g_rendezvous.netlink;
}

void close_netlink()
{
    if (g_rendezvous.netlink.has_value())
        libc::close_private(*g_rendezvous.netlink);
    g_rendezvous.netlink.reset();
}

Question ask_for(const Flow &flow, std::uint8_t protocol = IPPROTO_UDP)
{
    Question q = {};
    q.header.nlmsg_len = sizeof q;
    q.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    q.header.nlmsg_flags = NLM_F_REQUEST;
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&flow.destination.sin6_addr);
    const std::size_t skip = v4 ? 12 : 0;
    const std::size_t length = sizeof(in6_addr) - skip;
    q.request.sdiag_family = v4 ? AF_INET : AF_INET6;
    q.request.sdiag_protocol = protocol;
    q.request.idiag_states = ~0U;
    q.request.id.idiag_if = kLoopbackInterface;
    q.request.id.idiag_sport = flow.source.sin6_port;
    q.request.id.idiag_dport = flow.destination.sin6_port;
    q.request.id.idiag_cookie[0] = q.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    memcpy(q.request.id.idiag_src, &flow.source.sin6_addr.s6_addr[skip], length);
    memcpy(q.request.id.idiag_dst, &flow.destination.sin6_addr.s6_addr[skip], length);
    return q;
}

// 0 and the kernel's answer, or its positive error.
int exchange(int netlink, const Question &q, inet_diag_msg &out)
{
    alignas(nlmsghdr) char answer[kAnswerRoom];
    if (libc::uncancelled::send(netlink, &q, sizeof q, 0) != sizeof q)
        return errno;
    const ssize_t n = libc::real.syscall(SYS_recvfrom, netlink, answer, sizeof answer, 0, nullptr, nullptr);
    nlmsghdr header;
    if (n < static_cast<ssize_t>(sizeof header))
        return n < 0 ? errno : EPROTO;
    memcpy(&header, answer, sizeof header);
    const std::size_t rest = static_cast<std::size_t>(n) - NLMSG_HDRLEN;
    if (header.nlmsg_type == NLMSG_ERROR && rest >= sizeof(nlmsgerr)) {
        nlmsgerr error;
        memcpy(&error, answer + NLMSG_HDRLEN, sizeof error);
        return error.error != 0 ? -error.error : EPROTO;
    }
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || rest < sizeof out)
        return EPROTO;
    memcpy(&out, answer + NLMSG_HDRLEN, sizeof out);
    return 0;
}

Answer unknown(const char *why)
{
    if (config::is_first(config::Once::kNoReceivers))
        VMA_LOG(kWarn, "cannot ask the kernel for the receivers of datagrams: %s; datagrams go by the kernel", why);
    return Answer::kUnknown;
}

} // namespace

Answer find_receiver(int fd, const Flow &flow, Identity &out, std::uint32_t *unread)
{
    const Question q = ask_for(flow);
    inet_diag_msg m = {};
    LockGuard guard(g_rendezvous.netlink_lock);
    const int netlink = open_netlink();
    if (netlink < 0)
        return unknown(strerror(errno));
    if (g_rendezvous.netlink_network != network_of(fd))
        return Answer::kUnknown;
    const int error = exchange(netlink, q, m);
    if (error == ENOENT)
        return Answer::kNobody;
    if (error != 0) {
        close_netlink();
        return unknown(strerror(error));
    }
    if (m.idiag_uid != ::geteuid())
        return Answer::kNobody;
    out.cookie = std::uint64_t{m.id.idiag_cookie[1]} << 32 | m.id.idiag_cookie[0];
    out.inode = m.idiag_inode;
    if (unread != nullptr)
        *unread = m.idiag_rqueue;
    return Answer::kFound;
}

PeerAnswer find_other_end(const Addresses &addresses, Peer &out)
{
    Question q = ask_for({addresses.peer, addresses.local}, IPPROTO_TCP);
    q.request.id.idiag_if = 0; // to which the other end is bound, if it is, nobody knows
    inet_diag_msg m = {};
    const LockGuard guard(g_rendezvous.netlink_lock);
    const int netlink = open_netlink();
    if (netlink < 0 || g_rendezvous.netlink_network != addresses.network)
        return PeerAnswer::kUnknown;
    const int error = exchange(netlink, q, m);
    if (error == ENOENT)
        return PeerAnswer::kNotHere;
    if (error != 0) {
        close_netlink();
        return PeerAnswer::kUnknown;
    }
    // Where the connection has ended a listener may be found, which has no peer.
    if (m.id.idiag_dport != addresses.local.sin6_port || m.id.idiag_sport != addresses.peer.sin6_port)
        return PeerAnswer::kNotHere;
    if (m.idiag_inode == 0)
        return PeerAnswer::kNotYet;
    out.cookie = std::uint64_t{m.id.idiag_cookie[1]} << 32 | m.id.idiag_cookie[0];
    out.inode = m.idiag_inode;
    out.user = m.idiag_uid;
    return PeerAnswer::kHere;
}

namespace {

in6_addr address_of(const __be32 (&words)[4], bool v4)
{
    in6_addr out = {};
    if (v4) {
        in_addr address;
        memcpy(&address, words, sizeof address);
        return mapped(address);
    }
    memcpy(&out, words, sizeof out);
    return out;
}

bool only_ipv6(const char *attributes, std::size_t length)
{
    for (std::size_t at = 0; at + sizeof(nlattr) <= length;) {
        nlattr attribute;
        memcpy(&attribute, attributes + at, sizeof attribute);
        if (attribute.nla_len < NLA_HDRLEN || at + attribute.nla_len > length)
            break;
        if (attribute.nla_type == INET_DIAG_SKV6ONLY && attribute.nla_len > NLA_HDRLEN)
            return attributes[at + NLA_HDRLEN] != 0;
        at += NLA_ALIGN(attribute.nla_len);
    }
    return false;
}

// As __udp_is_mcast_sock() of the kernel.
bool may_get(const inet_diag_msg &m, bool only_v6, const Flow &flow, std::uint32_t interface)
{
    const bool v4 = m.idiag_family == AF_INET;
    const bool v4_group = IN6_IS_ADDR_V4MAPPED(&flow.destination.sin6_addr);
    const in6_addr bound = address_of(m.id.idiag_src, v4);
    const in6_addr peer = address_of(m.id.idiag_dst, v4);
    if ((v4 && !v4_group) || (!v4 && v4_group && only_v6))
        return false;
    if (!is_any(bound) && !IN6_ARE_ADDR_EQUAL(&bound, &flow.destination.sin6_addr))
        return false;
    if (m.id.idiag_if != 0 && m.id.idiag_if != interface)
        return false;
    return is_any(peer) || is_any(flow.source.sin6_addr) ||
           (IN6_ARE_ADDR_EQUAL(&peer, &flow.source.sin6_addr) && m.id.idiag_dport == flow.source.sin6_port);
}

enum class Step { kMore, kDone, kFailed };

Step read_list(const char *answer, std::size_t length, const Flow &flow, std::uint32_t interface,
               std::vector<Identity> &out)
{
    for (std::size_t at = 0; at + NLMSG_HDRLEN <= length;) {
        nlmsghdr header;
        inet_diag_msg m;
        memcpy(&header, answer + at, sizeof header);
        if (header.nlmsg_len < NLMSG_HDRLEN || at + header.nlmsg_len > length)
            return Step::kFailed;
        if (header.nlmsg_type == NLMSG_DONE)
            return Step::kDone;
        if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || header.nlmsg_len < NLMSG_LENGTH(sizeof m))
            return Step::kFailed;
        memcpy(&m, answer + at + NLMSG_HDRLEN, sizeof m);
        const std::size_t used = NLMSG_ALIGN(NLMSG_LENGTH(sizeof m));
        const bool only_v6 = header.nlmsg_len > used && only_ipv6(answer + at + used, header.nlmsg_len - used);
        if (may_get(m, only_v6, flow, interface))
            out.push_back({std::uint64_t{m.id.idiag_cookie[1]} << 32 | m.id.idiag_cookie[0], m.idiag_inode});
        at += NLMSG_ALIGN(header.nlmsg_len);
    }
    return Step::kMore;
}

// Sockets of one family that are bound to the port.
bool list_family(int netlink, std::uint8_t family, const Flow &flow, std::uint32_t interface,
                 std::vector<Identity> &out)
{
    char(&answer)[kListRoom] = g_rendezvous.list;
    Question q = {};
    q.header.nlmsg_len = sizeof q;
    q.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    q.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    q.request.sdiag_family = family;
    q.request.sdiag_protocol = IPPROTO_UDP;
    q.request.idiag_states = ~0U;
    q.request.id.idiag_sport = flow.destination.sin6_port;
    if (libc::uncancelled::send(netlink, &q, sizeof q, 0) != sizeof q)
        return false;
    for (Step step = Step::kMore; step != Step::kDone;) {
        const ssize_t n = libc::real.syscall(SYS_recvfrom, netlink, answer, sizeof answer, 0, nullptr, nullptr);
        step = n > 0 ? read_list(answer, static_cast<std::size_t>(n), flow, interface, out) : Step::kFailed;
        if (step == Step::kFailed)
            return false;
    }
    return true;
}

} // namespace

bool list_receivers(int fd, const Flow &flow, std::uint32_t interface, std::vector<Identity> &out)
{
    LockGuard guard(g_rendezvous.netlink_lock);
    const int netlink = open_netlink();
    if (netlink < 0 || g_rendezvous.netlink_network != network_of(fd))
        return false;
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&flow.destination.sin6_addr);
    if ((!v4 || list_family(netlink, AF_INET, flow, interface, out)) &&
        list_family(netlink, AF_INET6, flow, interface, out))
        return true;
    close_netlink(); // what is left of an answer goes with it
    return false;
}

std::uint64_t network_of(int fd)
{
    std::uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    return libc::real.getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

std::uint64_t network_of_thread()
{
    const int fd = libc::real.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const std::uint64_t network = fd >= 0 ? network_of(fd) : 0;
    if (fd >= 0)
        libc::real.close(fd);
    return network;
}

bool is_any(const in6_addr &a)
{
    static constexpr in_addr kNone = {};
    const in6_addr any4 = mapped(kNone);
    return IN6_IS_ADDR_UNSPECIFIED(&a) || IN6_ARE_ADDR_EQUAL(&a, &any4);
}

bool find_source(const sockaddr_in6 &destination, sockaddr_in6 &source)
{
    const int fd = libc::real.socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&destination.sin6_addr);
    socklen_t length = sizeof source;
    bool found = false;
    if (fd >= 0) {
        found = libc::real.connect(fd, reinterpret_cast<const sockaddr *>(&destination), sizeof destination) == 0 &&
                libc::real.getsockname(fd, reinterpret_cast<sockaddr *>(&source), &length) == 0;
        libc::real.close(fd);
        return found;
    }
    if (!v4)
        return false;
    sockaddr_in v4_destination = {}; // a kernel without IPv6
    sockaddr_in v4_source = {};
    v4_destination.sin_family = AF_INET;
    v4_destination.sin_port = destination.sin6_port;
    memcpy(&v4_destination.sin_addr, &destination.sin6_addr.s6_addr[12], sizeof(in_addr));
    const int v4_fd = libc::real.socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    length = sizeof v4_source;
    found =
        v4_fd >= 0 &&
        libc::real.connect(v4_fd, reinterpret_cast<const sockaddr *>(&v4_destination), sizeof v4_destination) == 0 &&
        libc::real.getsockname(v4_fd, reinterpret_cast<sockaddr *>(&v4_source), &length) == 0;
    if (v4_fd >= 0)
        libc::real.close(v4_fd);
    source = {};
    source.sin6_family = AF_INET6;
    source.sin6_addr = in6addr_any;
    source.sin6_addr.s6_addr[10] = source.sin6_addr.s6_addr[11] = 0xff;
    memcpy(&source.sin6_addr.s6_addr[12], &v4_source.sin_addr, sizeof(in_addr));
    return found;
}

void diag_after_fork_in_child()
{
    g_rendezvous.netlink_lock.reset();
    close_netlink(); // answers would be mixed up with the parent's
}

} // namespace vma::sock::udp
