// SPDX-License-Identifier: BSD-2-Clause
// Scenarios of control messages: what a receiver asks for comes with each datagram, and what a sender asks for is done.
#include <linux/net_tstamp.h>
#include <time.h>

#include <vector>

#include "fabtests/sockets/programs/datagrams/side.hpp"

namespace {

using namespace fabtest;

struct Wish {
    const char *name;
    int level, option, value;
};

constexpr Wish kFour[] = {{"IP_PKTINFO", IPPROTO_IP, IP_PKTINFO, 1},
                          {"IP_RECVTTL", IPPROTO_IP, IP_RECVTTL, 1},
                          {"IP_RECVTOS", IPPROTO_IP, IP_RECVTOS, 1},
                          {"IP_RECVORIGDSTADDR", IPPROTO_IP, IP_RECVORIGDSTADDR, 1}};
constexpr Wish kSix[] = {{"IPV6_RECVPKTINFO", IPPROTO_IPV6, IPV6_RECVPKTINFO, 1},
                         {"IPV6_RECVHOPLIMIT", IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1},
                         {"IPV6_RECVTCLASS", IPPROTO_IPV6, IPV6_RECVTCLASS, 1}};
constexpr Wish kBoth[] = {{"SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1},
                          {"SO_TIMESTAMPNS", SOL_SOCKET, SO_TIMESTAMPNS, 1},
                          {"SO_TIMESTAMPNS", SOL_SOCKET, SO_TIMESTAMPNS, 0},
                          {"SO_RXQ_OVFL", SOL_SOCKET, SO_RXQ_OVFL, 1}};

int set(int fd, const Wish &w, bool on)
{
    return set_option(fd, w.level, w.option, on ? w.value : 0);
}

// A sendmsg with one control message.
template <typename T> ssize_t send_with(const Link &l, const char *text, int level, int type, const T &value)
{
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(T))]{};
    iovec part{const_cast<char *>(text), std::strlen(text)};
    msghdr m{};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    m.msg_name = const_cast<sockaddr *>(l.other.get());
    m.msg_namelen = l.other.len;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = level;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(c), &value, sizeof value);
    return ::sendmsg(l.fd, &m, 0);
}

} // namespace

// Each wish by itself, switched on when datagrams are there already, then off again; at last all at once.
EVERY_FAMILY(wishes_of_receivers)
{
    std::vector<Wish> wishes(std::begin(kBoth), std::end(kBoth));
    wishes.insert(wishes.end(), std::begin(kFour), std::end(kFour));
    if (make_address(me.bound.c_str(), 0).family() == AF_INET6)
        wishes.insert(wishes.end(), std::begin(kSix), std::end(kSix));
    for (const Wish &w : wishes) {
        // Time-stamps: the kernel may begin a little later to take them, so only what it says in the end is shown.
        if (me.server)
            me.show(w.name, set(me.link.fd, w, true));
        me.step();
        me.deliver(me.link, {"asked for", ""});
        if (me.server) {
            me.take(w.name, me.link.fd, MSG_DONTWAIT);
            me.take(w.name, me.link.fd, MSG_DONTWAIT);
            me.show(w.name, set(me.link.fd, w, false));
        }
        me.step();
        me.deliver(me.link, {"not asked for"});
        if (me.server)
            me.take(w.name, me.link.fd, MSG_DONTWAIT);
        me.step();
    }
    if (me.server)
        for (const Wish &w : wishes)
            if (w.value != 0)
                me.show(w.name, set(me.link.fd, w, true));
    me.step();
    me.deliver(me.link, {"all", "of them"});
    if (me.server) {
        me.take("all", me.link.fd, MSG_DONTWAIT | MSG_PEEK);
        me.take("all", me.link.fd, MSG_DONTWAIT);
        me.take("all", me.link.fd, MSG_DONTWAIT);
    }
    me.step();
    me.still_works(me.link);
}

// What comes of a control buffer that is too small for what was asked for.
EVERY_FAMILY(control_cut)
{
    if (me.server) {
        const int on = 1;
        const bool six = make_address(me.bound.c_str(), 0).family() == AF_INET6;
        must(set_option(me.link.fd, SOL_SOCKET, SO_TIMESTAMP, on), "SO_TIMESTAMP");
        must(set_option(me.link.fd, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_RECVPKTINFO : IP_PKTINFO, on),
             "PKTINFO");
    }
    me.step();
    for (const std::size_t room : {0U, 8U, 16U, 20U, 32U, 40U, 60U, 64U, 72U, 100U, 256U}) {
        me.deliver(me.link, {"text"});
        if (me.server) {
            Received r = receive_by(Form::kRecvmsg, me.link.fd, 3, MSG_DONTWAIT, room);
            if (room < 100) // a message that was cut is not to be read
                r.control = r.control.empty() ? "nothing" : "something";
            me.show(("room of " + std::to_string(room)).c_str(), r);
        }
        me.step();
    }
    me.still_works(me.link);
}

// SO_TIMESTAMPING, software stamps of receiving: shown once the kernel has begun to take them.
SCENARIO(timestamping)
{
    if (me.server) {
        const int flags = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
        me.show("SO_TIMESTAMPING", set_option(me.link.fd, SOL_SOCKET, SO_TIMESTAMPING, flags));
    }
    Received r;
    for (std::uint64_t more = 1; more != 0;) {
        me.deliver(me.link, {"stamped"});
        if (me.server) {
            r = receive_by(Form::kRecvmsg, me.link.fd, 100, MSG_DONTWAIT, 512);
            more = r.result == 7 && r.control.empty();
            me.tell(more);
        } else {
            more = me.hear();
        }
    }
    if (me.server)
        me.show("recvmsg", r);
    me.step();
    me.still_works(me.link);
}

// Stamps grow along the queue, and lie between the send and the receive call.
SCENARIO(timestamps_in_order)
{
    const int on = 1;
    if (me.server)
        must(set_option(me.link.fd, SOL_SOCKET, SO_TIMESTAMPNS, on), "SO_TIMESTAMPNS");
    me.step();
    me.warm(me.link);
    std::vector<timespec> stamps(2);
    if (!me.server)
        for (int i = 0; i < 20; ++i) {
            timespec now{};
            clock_gettime(CLOCK_REALTIME, &now);
            must(static_cast<int>(send_to(me.link.fd, static_cast<void *>(&now), sizeof now, me.link.other)), "sendto");
        }
    me.step();
    if (me.server) {
        bool right = true;
        timespec last{};
        for (int i = 0; i < 20; ++i) {
            timespec sent{}, stamp{};
            alignas(cmsghdr) char control[64];
            iovec part{&sent, sizeof sent};
            msghdr m{};
            m.msg_iov = &part;
            m.msg_iovlen = 1;
            m.msg_control = control;
            m.msg_controllen = sizeof control;
            must(static_cast<int>(::recvmsg(me.link.fd, &m, MSG_DONTWAIT)), "recvmsg");
            const cmsghdr *c = CMSG_FIRSTHDR(&m);
            if (c == nullptr || c->cmsg_type != SO_TIMESTAMPNS)
                die("no stamp");
            std::memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
            timespec now{};
            clock_gettime(CLOCK_REALTIME, &now);
            const auto nanoseconds = [](const timespec &t) { return std::int64_t{t.tv_sec} * 1000000000 + t.tv_nsec; };
            right = right && nanoseconds(sent) <= nanoseconds(stamp) && nanoseconds(last) <= nanoseconds(stamp) &&
                    nanoseconds(stamp) <= nanoseconds(now);
            last = stamp;
        }
        me.say("in order, and between sending and receiving: %s", right ? "yes" : "no");
    }
    me.step();
    me.still_works(me.link);
}

// TOS, TTL and their like, set for the socket and for one datagram.
SCENARIO(marks_of_senders)
{
    const auto show = [&](const char *what) {
        me.step();
        if (me.server)
            me.take(what, me.link.fd, MSG_DONTWAIT);
        me.step();
    };
    if (me.server)
        for (const Wish &w : kFour)
            must(set(me.link.fd, w, true), w.name);
    me.step();
    if (!me.server) {
        me.show("unmarked", send_to(me.link.fd, "a", 1, me.link.other));
    }
    show("unmarked");
    if (!me.server) {
        const int tos = 0x28, ttl = 33;
        me.show("IP_TOS", set_option(me.link.fd, IPPROTO_IP, IP_TOS, tos));
        me.show("sendto", send_to(me.link.fd, "b", 1, me.link.other));
        me.show("IP_TTL", set_option(me.link.fd, IPPROTO_IP, IP_TTL, ttl));
    }
    show("IP_TOS 0x28");
    if (!me.server)
        me.show("sendto", send_to(me.link.fd, "c", 1, me.link.other));
    show("and IP_TTL 33");
    if (!me.server)
        me.show("cmsg IP_TOS", send_with(me.link, "d", IPPROTO_IP, IP_TOS, 0x10));
    show("cmsg IP_TOS 0x10");
    if (!me.server)
        me.show("cmsg IP_TTL", send_with(me.link, "e", IPPROTO_IP, IP_TTL, 7));
    show("cmsg IP_TTL 7");
    if (!me.server)
        me.show("wrong cmsg IP_TTL", send_with(me.link, "f", IPPROTO_IP, IP_TTL, 700));
    show("wrong");
    if (!me.server) {
        const int off = 0;
        me.show("IP_TOS", set_option(me.link.fd, IPPROTO_IP, IP_TOS, off));
        me.show("sendto", send_to(me.link.fd, "g", 1, me.link.other));
    }
    show("IP_TOS off again");
    me.still_works(me.link);
}

SCENARIO(marks_of_senders_six)
{
    int fd = -1;
    std::uint16_t number = 0;
    if (me.server) {
        fd = bound_socket(make_address("::1", 0));
        number = local_address(fd).port();
        for (const Wish &w : kSix)
            must(set(fd, w, true), w.name);
    }
    number = me.share_port(number, me.server, "N");
    const auto show = [&](const char *what) {
        me.step();
        if (me.server)
            me.take(what, fd, MSG_DONTWAIT);
        me.step();
    };
    Link l{fd, make_address("::1", number)};
    if (!me.server) {
        l.fd = bound_socket(make_address("::1", 0));
        me.name_port(local_address(l.fd).port(), "E");
        for (int i = 0; i < 200; ++i)
            must(static_cast<int>(send_to(l.fd, "x", 1, l.other)), "sendto");
        const int tclass = 0x44, hops = 9;
        me.show("IPV6_TCLASS", set_option(l.fd, IPPROTO_IPV6, IPV6_TCLASS, tclass));
        me.show("IPV6_UNICAST_HOPS", set_option(l.fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, hops));
    }
    me.share_port(me.server ? std::uint16_t{0} : local_address(l.fd).port(), !me.server, "E");
    if (me.server)
        me.say("warm: %u", me.drain(fd));
    me.step();
    if (!me.server)
        me.show("sendto", send_to(l.fd, "marked", 6, l.other));
    show("TCLASS 0x44, 9 hops");
    if (!me.server)
        me.show("cmsg", send_with(l, "cmsg", IPPROTO_IPV6, IPV6_TCLASS, 0x10));
    show("cmsg TCLASS 0x10");
    if (!me.server)
        me.show("cmsg", send_with(l, "cmsg", IPPROTO_IPV6, IPV6_HOPLIMIT, 3));
    show("cmsg HOPLIMIT 3");
    me.still_works(me.link);
}

// IP_PKTINFO tells which of the host's addresses was meant, and chooses the one an answer comes from.
SCENARIO(packet_information)
{
    int fd = -1;
    std::uint16_t number = 0;
    if (me.server) {
        fd = bound_socket(make_address("0.0.0.0", 0));
        number = local_address(fd).port();
        const int on = 1;
        must(set_option(fd, IPPROTO_IP, IP_PKTINFO, on), "IP_PKTINFO");
    }
    number = me.share_port(number, me.server, "N");
    for (const char *host : {"127.0.0.1", "127.0.0.2", "127.5.5.5"}) {
        if (!me.server)
            for (int i = 0; i < 100; ++i)
                must(static_cast<int>(send_to(me.link.fd, "x", 1, make_address(host, number))), "sendto");
        me.step();
        if (me.server) {
            const Received r = me.take(host, fd, MSG_DONTWAIT);
            me.say("left: %u", me.drain(fd));
            in_pktinfo info{};
            const Address wanted = make_address(host, 0);
            info.ipi_spec_dst = reinterpret_cast<const sockaddr_in *>(&wanted.storage)->sin_addr;
            me.show("answer", send_with(Link{fd, r.from}, "answer", IPPROTO_IP, IP_PKTINFO, info));
        }
        me.step();
        if (!me.server)
            me.take("answer", me.link.fd, MSG_DONTWAIT);
        me.step();
    }
    me.still_works(me.link);
}

// What getsockopt says of a socket that has been in use.
EVERY_FAMILY(options_as_set)
{
    const Wish options[] = {{"SO_TYPE", SOL_SOCKET, SO_TYPE, 0},
                            {"SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL, 0},
                            {"SO_DOMAIN", SOL_SOCKET, SO_DOMAIN, 0},
                            {"SO_ERROR", SOL_SOCKET, SO_ERROR, 0},
                            {"SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN, 0},
                            {"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST, 0},
                            {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 0},
                            {"SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT, 0},
                            {"SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 0},
                            {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 0},
                            {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 0},
                            {"SO_RXQ_OVFL", SOL_SOCKET, SO_RXQ_OVFL, 0}};
    for (const Wish &o : options)
        me.say("%s %d", o.name, int_option(me.link.fd, o.level, o.option));
    const int size = 30000;
    must(set_option(me.link.fd, SOL_SOCKET, SO_RCVBUF, size), "SO_RCVBUF");
    must(set_option(me.link.fd, SOL_SOCKET, SO_SNDBUF, size), "SO_SNDBUF");
    me.say("%d %d", int_option(me.link.fd, SOL_SOCKET, SO_RCVBUF), int_option(me.link.fd, SOL_SOCKET, SO_SNDBUF));
    me.step();
    if (!me.server)
        me.show("longer than the send buffer", send_to(me.link.fd, pattern_text(65000).data(), 65000, me.link.other));
    me.step();
    if (me.server)
        me.say("came: %u", me.drain(me.link.fd));
    me.step();
    me.still_works(me.link);
}

// What is set is told, in both lengths, and datagrams at a rate come in their order.
SCENARIO(pacing_rates)
{
    const auto rate = [&me](const char *when) {
        for (const socklen_t size : {8u, 4u, 3u}) {
            unsigned long long value = 0;
            socklen_t len = size;
            const int result = ::getsockopt(me.link.fd, SOL_SOCKET, SO_MAX_PACING_RATE, &value, &len);
            me.say("%s, %u bytes: %d, %llu in %u", when, size, result, value, len);
        }
    };
    rate("at first");
    const std::uint64_t wide = 8'000'000'000;
    me.show("8 bytes", set_option(me.link.fd, SOL_SOCKET, SO_MAX_PACING_RATE, wide));
    rate("8 GB");
    me.show("short", ::setsockopt(me.link.fd, SOL_SOCKET, SO_MAX_PACING_RATE, &wide, 2));
    me.show("nowhere", ::setsockopt(me.link.fd, SOL_SOCKET, SO_MAX_PACING_RATE, nullptr, 8));
    const std::uint32_t narrow = 400'000;
    me.show("4 bytes", set_option(me.link.fd, SOL_SOCKET, SO_MAX_PACING_RATE, narrow));
    rate("400 kB");
    me.step();
    const std::string text = pattern_text(1000);
    for (std::size_t i = 0; i < 20 && !me.server; ++i)
        me.show("send", send_to(me.link.fd, text.data() + i, text.size() - i, me.link.other));
    me.step();
    for (int i = 0; i < 20 && me.server; ++i)
        me.say("came: %zd", ::recv(me.link.fd, nullptr, 0, MSG_TRUNC));
    me.step();
    const std::uint32_t none = ~0U;
    me.show("none", set_option(me.link.fd, SOL_SOCKET, SO_MAX_PACING_RATE, none));
    rate("at last");
    me.still_works(me.link);
}
