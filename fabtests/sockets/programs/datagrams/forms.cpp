// SPDX-License-Identifier: BSD-2-Clause
// The receiving calls, each with all that it can tell, and control messages in words. See side.hpp.
#include <time.h> // the kernel's headers below lack it

#include <linux/errqueue.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <sys/time.h>

#include <algorithm>

#include "fabtests/sockets/programs/datagrams/side.hpp"

namespace fabtest {

namespace {

template <typename T> T value_of(const cmsghdr *c)
{
    T value{};
    std::memcpy(&value, CMSG_DATA(c), std::min(sizeof value, c->cmsg_len - CMSG_LEN(0)));
    return value;
}

// A time-stamp of the last minute: "now", else what is wrong with it.
std::string time_text(std::int64_t seconds, std::int64_t nanoseconds)
{
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const std::int64_t age = (now.tv_sec - seconds) * 1000000000 + now.tv_nsec - nanoseconds;
    if (seconds == 0 && nanoseconds == 0)
        return "0";
    return age >= 0 && age < 60000000000 ? "now" : "another time";
}

std::string interface_text(unsigned index)
{
    char name[IF_NAMESIZE];
    return index == 0 ? "0" : ::if_indextoname(index, name) != nullptr ? name : "?";
}

std::string address_text(int family, const void *address)
{
    Address a = make_address(family == AF_INET ? "0.0.0.0" : "::", 0);
    if (family == AF_INET)
        std::memcpy(&reinterpret_cast<sockaddr_in *>(&a.storage)->sin_addr, address, 4);
    else
        std::memcpy(&reinterpret_cast<sockaddr_in6 *>(&a.storage)->sin6_addr, address, 16);
    return a.host();
}

std::string error_text(const cmsghdr *c)
{
    const auto e = value_of<sock_extended_err>(c);
    return std::string(strerrorname_np(static_cast<int>(e.ee_errno))) + " origin " + std::to_string(e.ee_origin) +
           " type " + std::to_string(e.ee_type) + " code " + std::to_string(e.ee_code);
}

std::string number_text(const cmsghdr *c)
{
    return std::to_string(c->cmsg_len == CMSG_LEN(1) ? value_of<unsigned char>(c) : value_of<int>(c));
}

std::string socket_text(const cmsghdr *c)
{
    switch (c->cmsg_type) {
    case SO_TIMESTAMP: {
        const auto t = value_of<timeval>(c);
        return "TIMESTAMP " + time_text(t.tv_sec, t.tv_usec * 1000);
    }
    case SO_TIMESTAMPNS: {
        const auto t = value_of<timespec>(c);
        return "TIMESTAMPNS " + time_text(t.tv_sec, t.tv_nsec);
    }
    case SO_TIMESTAMPING: {
        const auto t = value_of<std::array<timespec, 3>>(c);
        return "TIMESTAMPING " + time_text(t[0].tv_sec, t[0].tv_nsec) + " " + time_text(t[1].tv_sec, t[1].tv_nsec) +
               " " + time_text(t[2].tv_sec, t[2].tv_nsec);
    }
    case SO_RXQ_OVFL:
        return "RXQ_OVFL " + number_text(c);
    default:
        return "";
    }
}

std::string ip_text(const cmsghdr *c)
{
    switch (c->cmsg_type) {
    case IP_PKTINFO: {
        const auto p = value_of<in_pktinfo>(c);
        return "PKTINFO " + address_text(AF_INET, &p.ipi_addr) + " local " + address_text(AF_INET, &p.ipi_spec_dst) +
               " at " + interface_text(static_cast<unsigned>(p.ipi_ifindex));
    }
    case IP_TTL:
        return "TTL " + number_text(c);
    case IP_TOS:
        return "TOS " + number_text(c);
    case IP_RECVERR:
        return "RECVERR " + error_text(c);
    case IP_ORIGDSTADDR: {
        Address a;
        std::memcpy(a.get(), CMSG_DATA(c), sizeof(sockaddr_in));
        return "ORIGDSTADDR " + Datagrams::name(a);
    }
    default:
        return "";
    }
}

std::string ipv6_text(const cmsghdr *c)
{
    switch (c->cmsg_type) {
    case IPV6_PKTINFO: {
        const auto p = value_of<in6_pktinfo>(c);
        return "PKTINFO " + address_text(AF_INET6, &p.ipi6_addr) + " at " + interface_text(p.ipi6_ifindex);
    }
    case IPV6_HOPLIMIT:
        return "HOPLIMIT " + number_text(c);
    case IPV6_TCLASS:
        return "TCLASS " + number_text(c);
    case IPV6_RECVERR:
        return "RECVERR " + error_text(c);
    default:
        return "";
    }
}

std::string cmsg_text(const cmsghdr *c)
{
    std::string text;
    if (c->cmsg_level == SOL_SOCKET)
        text = socket_text(c);
    else if (c->cmsg_level == IPPROTO_IP)
        text = ip_text(c);
    else if (c->cmsg_level == IPPROTO_IPV6)
        text = ipv6_text(c);
    else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO)
        text = "GRO " + number_text(c);
    return !text.empty() ? text : "cmsg " + std::to_string(c->cmsg_level) + "/" + std::to_string(c->cmsg_type);
}

} // namespace

std::string control_text(msghdr &message)
{
    std::string text;
    for (cmsghdr *c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c))
        text += (text.empty() ? "" : ", ") + cmsg_text(c);
    return text;
}

const char *form_name(Form form)
{
    static const char *const kNames[] = {"read", "readv", "recv", "recvfrom", "recvmsg", "recvmmsg"};
    return kNames[static_cast<int>(form)];
}

Received receive_by(Form form, int fd, std::size_t len, int flags, std::size_t control_len)
{
    Received r;
    std::string buf(len + 16, '#'); // what lies behind the buffer must stay as it is
    alignas(cmsghdr) char control[1024]{};
    const std::size_t cut = len / 3;
    iovec parts[2] = {{buf.data(), cut}, {buf.data() + cut, len - cut}};
    mmsghdr message{};
    msghdr &m = message.msg_hdr;
    m.msg_iov = parts;
    m.msg_iovlen = 2;
    m.msg_name = r.from.get();
    m.msg_namelen = r.from.len;
    m.msg_control = control_len != 0 ? control : nullptr;
    m.msg_controllen = control_len;
    m.msg_flags = 0x55; // only a result
    errno = 0;
    switch (form) {
    case Form::kRead:
        r.result = ::read(fd, buf.data(), len);
        break;
    case Form::kReadv:
        r.result = ::readv(fd, parts, 2);
        break;
    case Form::kRecv:
        r.result = ::recv(fd, buf.data(), len, flags);
        break;
    case Form::kRecvfrom:
        r.result = ::recvfrom(fd, buf.data(), len, flags, r.from.get(), &r.from.len);
        break;
    case Form::kRecvmsg:
        r.result = ::recvmsg(fd, &m, flags);
        break;
    case Form::kRecvmmsg:
        r.result = ::recvmmsg(fd, &message, 1, flags, nullptr);
        if (r.result == 1)
            r.result = message.msg_len;
        break;
    }
    r.error = errno;
    if (form == Form::kRecvmsg || form == Form::kRecvmmsg)
        r.from.len = r.result < 0 ? 0 : m.msg_namelen;
    else if (form != Form::kRecvfrom || r.result < 0)
        r.from.len = 0;
    if (r.result < 0)
        return r;
    if (form == Form::kRecvmsg || form == Form::kRecvmmsg) {
        r.flags = m.msg_flags;
        r.control = control_text(m);
    }
    r.data = buf.substr(0, std::min(len, static_cast<std::size_t>(r.result)));
    if (buf.compare(r.data.size(), std::string::npos, std::string(buf.size() - r.data.size(), '#')) != 0)
        die("%s of %zu bytes has written behind the %zd it got", form_name(form), len, r.result);
    return r;
}

} // namespace fabtest
