// SPDX-License-Identifier: BSD-2-Clause
// A node of a multicast test: does what the harness tells it on a control socket, one command a message, and answers
// with what the call returned. Sockets have names. The table of commands is at the end.
#include <net/if.h>
#include <sys/time.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/datagrams/side.hpp"

namespace {

using namespace fabtest;

using Words = std::vector<std::string>;

std::map<std::string, int> g_sockets;

int socket_of(const std::string &name)
{
    const auto found = g_sockets.find(name);
    if (found == g_sockets.end())
        die("no socket %s", name.c_str());
    return found->second;
}

std::uint16_t port_of(const std::string &word)
{
    return static_cast<std::uint16_t>(std::strtoul(word.c_str(), nullptr, 10));
}

std::string result(long value)
{
    return value < 0 ? strerrorname_np(errno) : std::to_string(value);
}

in_addr four(const std::string &host)
{
    const Address a = make_address(host.c_str(), 0);
    return reinterpret_cast<const sockaddr_in *>(&a.storage)->sin_addr;
}

in6_addr six(const std::string &host)
{
    const Address a = make_address(host.c_str(), 0);
    return reinterpret_cast<const sockaddr_in6 *>(&a.storage)->sin6_addr;
}

// Names in the harness's tests -> options that are an int.
int set_int(int fd, const std::string &option, int value)
{
    static const std::map<std::string, std::pair<int, int>> kOptions = {
        {"reuseaddr", {SOL_SOCKET, SO_REUSEADDR}},
        {"reuseport", {SOL_SOCKET, SO_REUSEPORT}},
        {"loop", {IPPROTO_IP, IP_MULTICAST_LOOP}},
        {"all", {IPPROTO_IP, IP_MULTICAST_ALL}},
        {"ttl", {IPPROTO_IP, IP_MULTICAST_TTL}},
        {"loop6", {IPPROTO_IPV6, IPV6_MULTICAST_LOOP}},
        {"all6", {IPPROTO_IPV6, IPV6_MULTICAST_ALL}},
        {"hops6", {IPPROTO_IPV6, IPV6_MULTICAST_HOPS}},
        {"pktinfo", {IPPROTO_IP, IP_PKTINFO}},
        {"recvttl", {IPPROTO_IP, IP_RECVTTL}},
        {"pktinfo6", {IPPROTO_IPV6, IPV6_RECVPKTINFO}},
        {"v6only", {IPPROTO_IPV6, IPV6_V6ONLY}},
        {"broadcast", {SOL_SOCKET, SO_BROADCAST}},
        {"tos", {IPPROTO_IP, IP_TOS}},
        {"tclass6", {IPPROTO_IPV6, IPV6_TCLASS}},
        {"recvtos", {IPPROTO_IP, IP_RECVTOS}},
        {"recvtclass6", {IPPROTO_IPV6, IPV6_RECVTCLASS}},
        {"recvhops6", {IPPROTO_IPV6, IPV6_RECVHOPLIMIT}},
        {"rcvbuf", {SOL_SOCKET, SO_RCVBUFFORCE}}};
    const auto &[level, name] = kOptions.at(option);
    return set_option(fd, level, name, value);
}

// The interface that multicasts are sent by, named by address, by index or both ways of IPv6.
int set_interface(int fd, const std::string &how, const std::string &value)
{
    if (how == "address")
        return set_option(fd, IPPROTO_IP, IP_MULTICAST_IF, four(value));
    const int index = static_cast<int>(::if_nametoindex(value.c_str()));
    if (how == "index6")
        return set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, index);
    ip_mreqn m{};
    m.imr_ifindex = index;
    return set_option(fd, IPPROTO_IP, IP_MULTICAST_IF, m);
}

// Every way to become a member, or to stop being one. `at` is an interface's name, for "mreq" and "source" its address.
int member(int fd, bool join, const std::string &how, const std::string &group, const std::string &at,
           const std::string &source)
{
    const Address g = make_address(group.c_str(), 0);
    const int level = g.family() == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
    const unsigned index = ::if_nametoindex(at.c_str());
    if (how == "mreq") {
        const ip_mreq m{four(group), four(at)};
        return set_option(fd, level, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, m);
    }
    if (how == "mreqn") {
        ip_mreqn m{};
        m.imr_multiaddr = four(group);
        m.imr_ifindex = static_cast<int>(index);
        return set_option(fd, level, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, m);
    }
    if (how == "source" || how == "block") {
        ip_mreq_source m{};
        m.imr_multiaddr = four(group);
        m.imr_interface = four(at);
        m.imr_sourceaddr = four(source);
        if (how == "block")
            return set_option(fd, level, join ? IP_UNBLOCK_SOURCE : IP_BLOCK_SOURCE, m);
        return set_option(fd, level, join ? IP_ADD_SOURCE_MEMBERSHIP : IP_DROP_SOURCE_MEMBERSHIP, m);
    }
    if (how == "filter") { // of one that is a member: of all sources that one only, or all but none
        const in_addr only = four(source);
        return ::setipv4sourcefilter(fd, four(at), four(group), join ? MCAST_INCLUDE : MCAST_EXCLUDE, join ? 1 : 0,
                                     &only);
    }
    if (how == "group") {
        group_req m{};
        m.gr_interface = index;
        m.gr_group = g.storage;
        return set_option(fd, level, join ? MCAST_JOIN_GROUP : MCAST_LEAVE_GROUP, m);
    }
    if (how == "group_source") {
        group_source_req m{};
        m.gsr_interface = index;
        m.gsr_group = g.storage;
        m.gsr_source = make_address(source.c_str(), 0).storage;
        return set_option(fd, level, join ? MCAST_JOIN_SOURCE_GROUP : MCAST_LEAVE_SOURCE_GROUP, m);
    }
    if (how == "six") {
        const ipv6_mreq m{six(group), index};
        return set_option(fd, level, join ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, m);
    }
    die("no way to be a member: %s", how.c_str());
}

std::string numbered(long number)
{
    return "number " + std::to_string(number);
}

// All that is there, and where from: "a from 10.0.0.1:5000 with TTL 1; b from ...".
std::string drain(int fd)
{
    std::string text;
    for (Received r; (r = receive_by(Form::kRecvmsg, fd, 100, MSG_DONTWAIT, 256)).result >= 0;) {
        text += (text.empty() ? "" : "; ") + r.data + " from " + r.from.host() + ":" + std::to_string(r.from.port());
        text += r.control.empty() ? "" : " with " + r.control;
    }
    if (errno != EAGAIN)
        text += strerrorname_np(errno);
    return text;
}

// Waits for `count` datagrams that carry the numbers from `first` on, in order; others are a fault.
std::string collect(int fd, long first, long count)
{
    for (long i = first; i < first + count; ++i) {
        pollfd p{fd, POLLIN, 0};
        if (::poll(&p, 1, patience::milliseconds()) == 0)
            return "nothing comes instead of " + numbered(i);
        const Received r = receive_by(i % 2 ? Form::kRecvfrom : Form::kRecv, fd, 100);
        if (r.data.substr(0, r.data.find('\0')) != numbered(i))
            return "\"" + r.data + "\" instead of " + numbered(i);
    }
    return "all";
}

// Each `nth` is one of `size` bytes, filled up with NULs.
std::string send_numbers(int fd, const Address &to, long first, long count, long nth = 0, std::size_t size = 0)
{
    for (long i = first; i < first + count; ++i) {
        std::string text = numbered(i);
        if (nth != 0 && i % nth == 0)
            text.resize(size);
        if (send_to(fd, text.data(), text.size(), to) != static_cast<ssize_t>(text.size()))
            return strerrorname_np(errno);
    }
    return "sent";
}

// Through the interface that the control data names, whatever the socket's options say.
long send_with_control(int fd, const Address &to, const std::string &text, const std::string &interface)
{
    const int index = static_cast<int>(::if_nametoindex(interface.c_str()));
    iovec part = {const_cast<char *>(text.data()), text.size()};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(in6_pktinfo))] = {};
    msghdr message = {};
    message.msg_name = const_cast<sockaddr_storage *>(&to.storage);
    message.msg_namelen = to.len;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room;
    const bool four = to.family() == AF_INET;
    message.msg_controllen = CMSG_SPACE(four ? sizeof(in_pktinfo) : sizeof(in6_pktinfo));
    cmsghdr *const control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = four ? IPPROTO_IP : IPPROTO_IPV6;
    control->cmsg_type = four ? IP_PKTINFO : IPV6_PKTINFO;
    control->cmsg_len = CMSG_LEN(four ? sizeof(in_pktinfo) : sizeof(in6_pktinfo));
    if (four)
        reinterpret_cast<in_pktinfo *>(CMSG_DATA(control))->ipi_ifindex = index;
    else
        reinterpret_cast<in6_pktinfo *>(CMSG_DATA(control))->ipi6_ifindex = static_cast<unsigned>(index);
    return ::sendmsg(fd, &message, 0);
}

struct Command {
    const char *name;
    std::size_t words; // at least
    std::string (*run)(const Words &);
};

const Command kCommands[] = {
    {"socket", 3, // NAME 4|6
     [](const Words &w) {
         g_sockets[w[1]] = udp_socket(w[2] == "6" ? AF_INET6 : AF_INET);
         return std::string("0");
     }},
    {"close", 2,
     [](const Words &w) {
         const int fd = socket_of(w[1]);
         g_sockets.erase(w[1]);
         return result(::close(fd));
     }},
    {"bind", 4, // NAME HOST PORT
     [](const Words &w) { return result(bind_to(socket_of(w[1]), make_address(w[2].c_str(), port_of(w[3])))); }},
    {"connect", 4,
     [](const Words &w) { return result(connect_to(socket_of(w[1]), make_address(w[2].c_str(), port_of(w[3])))); }},
    {"option", 4, // NAME OPTION VALUE
     [](const Words &w) { return result(set_int(socket_of(w[1]), w[2], std::atoi(w[3].c_str()))); }},
    {"interface", 4, // NAME address|index|index6 VALUE
     [](const Words &w) { return result(set_interface(socket_of(w[1]), w[2], w[3])); }},
    {"join", 5, // NAME HOW GROUP AT [SOURCE]
     [](const Words &w) { return result(member(socket_of(w[1]), true, w[2], w[3], w[4], w.size() > 5 ? w[5] : "")); }},
    {"leave", 5,
     [](const Words &w) { return result(member(socket_of(w[1]), false, w[2], w[3], w[4], w.size() > 5 ? w[5] : "")); }},
    {"send", 5, // NAME HOST PORT TEXT
     [](const Words &w) {
         const Address to = make_address(w[2].c_str(), port_of(w[3]));
         return result(send_to(socket_of(w[1]), w[4].data(), w[4].size(), to));
     }},
    {"write", 3, // NAME TEXT
     [](const Words &w) { return result(::write(socket_of(w[1]), w[2].data(), w[2].size())); }},
    {"control", 6, // NAME HOST PORT TEXT INTERFACE
     [](const Words &w) {
         const Address to = make_address(w[2].c_str(), port_of(w[3]));
         return result(send_with_control(socket_of(w[1]), to, w[4], w[5]));
     }},
    {"burst", 6, // NAME HOST PORT FIRST COUNT [NTH SIZE]
     [](const Words &w) {
         return send_numbers(socket_of(w[1]), make_address(w[2].c_str(), port_of(w[3])), std::atol(w[4].c_str()),
                             std::atol(w[5].c_str()), w.size() > 7 ? std::atol(w[6].c_str()) : 0,
                             w.size() > 7 ? static_cast<std::size_t>(std::atol(w[7].c_str())) : 0);
     }},
    {"collect", 4, // NAME FIRST COUNT
     [](const Words &w) { return collect(socket_of(w[1]), std::atol(w[2].c_str()), std::atol(w[3].c_str())); }},
    {"drain", 2, [](const Words &w) { return drain(socket_of(w[1])); }},
    {"wait", 2, // until there is something to receive
     [](const Words &w) {
         pollfd p{socket_of(w[1]), POLLIN, 0};
         return result(::poll(&p, 1, patience::milliseconds()));
     }},
};

std::string obey(const std::string &line)
{
    std::istringstream stream(line);
    Words words;
    for (std::string word; stream >> word;)
        words.push_back(word);
    for (const Command &c : kCommands)
        if (!words.empty() && words[0] == c.name && words.size() >= c.words)
            return c.run(words);
    die("no command: %s", line.c_str());
}

} // namespace

// multicast FD: commands come by this SOCK_SEQPACKET socket, until it ends.
int main(int argc, char **argv)
{
    if (argc != 2)
        die("usage: multicast FD");
    const int control = std::atoi(argv[1]);
    char line[1000];
    for (ssize_t n; (n = ::recv(control, line, sizeof line, 0)) > 0;) {
        // A NUL before the answer, as an empty message would be the end.
        const std::string answer = std::string(1, '\0') + obey(std::string(line, static_cast<std::size_t>(n)));
        must(static_cast<int>(::send(control, answer.data(), answer.size(), MSG_NOSIGNAL)), "answer");
    }
    return 0;
}
