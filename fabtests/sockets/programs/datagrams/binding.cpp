// SPDX-License-Identifier: BSD-2-Clause
// Scenarios of names: which socket a datagram is for, as sockets are bound, connected, disconnected, closed, in groups.
#include <array>
#include <map>
#include <set>
#include <vector>

#include "fabtests/sockets/programs/datagrams/side.hpp"

namespace {

using namespace fabtest;

void say_names(const Datagrams &me, const char *when, int fd)
{
    Address peer;
    const int connected = ::getpeername(fd, peer.get(), &peer.len);
    const std::string error = connected < 0 ? strerrorname_np(errno) : me.name(peer);
    me.say("%s: %s, peer %s", when, me.name(local_address(fd)).c_str(), error.c_str());
}

int disconnect(int fd)
{
    sockaddr nobody{};
    nobody.sa_family = AF_UNSPEC;
    return ::connect(fd, &nobody, sizeof nobody);
}

const Prepare kShareAddress = [](int fd) {
    const int on = 1;
    must(set_option(fd, SOL_SOCKET, SO_REUSEADDR, on), "SO_REUSEADDR");
};
const Prepare kSharePort = [](int fd) {
    const int on = 1;
    must(set_option(fd, SOL_SOCKET, SO_REUSEPORT, on), "SO_REUSEPORT");
};

int bound_shared(const Address &address, const Prepare &share)
{
    const int fd = udp_socket(address.family());
    share(fd);
    must(bind_to(fd, address), "bind");
    return fd;
}

} // namespace

// Others' datagrams do not come to a connected socket; those that were there before it connected do.
EVERY_FAMILY(connected_filters)
{
    const Link other = me.open("D", "T");
    if (!me.server)
        must(static_cast<int>(send_to(other.fd, "early", 5, me.link.other)), "sendto");
    me.step();
    if (me.server) {
        must(connect_to(me.link.fd, me.link.other), "connect");
        say_names(me, "connected", me.link.fd);
    }
    me.step();
    if (!me.server) {
        for (int i = 0; i < 3; ++i)
            me.show("from D", send_to(other.fd, "foreign", 7, me.link.other));
        me.show("from C", send_to(me.link.fd, "right", 5, me.link.other));
    }
    me.step();
    if (me.server) {
        me.take("before", me.link.fd, MSG_DONTWAIT);
        me.take("then", me.link.fd, MSG_DONTWAIT);
        me.nothing_there("and", me.link.fd);
    }
    me.step();
    me.warm(me.link);
    me.still_works(me.link);
    me.still_works(other);
}

// Connected to one, then to another, then to nobody.
EVERY_FAMILY(reconnect)
{
    const Link other = me.open("D", "T");
    if (me.server) { // T does not take part; S gets a port that disconnecting does not take away, as bind() named it
        const Address here = local_address(me.link.fd);
        must(::close(other.fd), "close");
        must(::close(me.link.fd), "close");
        me.link.fd = bound_socket(here);
    }
    me.step();
    me.warm(me.link);
    const auto round = [&](const char *when) {
        me.step();
        if (!me.server) {
            me.show("from C", send_to(me.link.fd, "of C", 4, me.link.other));
            me.show("from D", send_to(other.fd, "of D", 4, me.link.other));
        }
        me.step();
        if (me.server) {
            say_names(me, when, me.link.fd);
            while (me.take("recvmsg", me.link.fd, MSG_DONTWAIT).result >= 0) {
            }
            me.show("send", ::send(me.link.fd, "to the peer", 11, 0));
        }
        me.step();
        if (!me.server) {
            me.take("C", me.link.fd, MSG_DONTWAIT);
            me.take("D", other.fd, MSG_DONTWAIT);
        }
        me.step();
    };
    round("unconnected");
    if (me.server)
        must(connect_to(me.link.fd, me.link.other), "connect");
    round("to C");
    if (me.server) {
        Address a = me.link.other;
        a.set_port(other.other.port());
        must(connect_to(me.link.fd, a), "connect");
    }
    round("to D");
    if (me.server)
        me.show("disconnect", disconnect(me.link.fd));
    round("disconnected");
    if (me.server)
        me.show("again", disconnect(me.link.fd));
    me.step();
    me.warm(me.link);
    me.still_works(me.link);
}

// Names that a socket has as it is bound by bind, by connect, by sendto, and what disconnecting takes away.
EVERY_FAMILY(names)
{
    if (!me.server) {
        const int family = local_address(me.link.fd).family();
        int fd = udp_socket(family);
        say_names(me, "new", fd);
        me.show("send", ::send(fd, "x", 1, 0));
        const Received r = receive_by(Form::kRecv, fd, 10, MSG_DONTWAIT);
        me.show("recv unbound", r);
        me.show("sendto", send_to(fd, "by sendto", 9, me.link.other));
        me.name_port(local_address(fd).port(), "E");
        say_names(me, "after sendto", fd);
        const Address any = make_address(family == AF_INET ? "0.0.0.0" : "::", 0);
        me.show("bind again", bind_to(fd, any));
        me.show("connect", connect_to(fd, me.link.other));
        say_names(me, "connected", fd);
        me.show("disconnect", disconnect(fd));
        say_names(me, "disconnected", fd); // was bound by sendto
        must(::close(fd), "close");

        fd = udp_socket(family);
        me.show("connect", connect_to(fd, me.link.other));
        me.name_port(local_address(fd).port(), "F");
        say_names(me, "connected", fd);
        me.show("send", ::send(fd, "by connect", 10, 0));
        me.show("disconnect", disconnect(fd));
        say_names(me, "disconnected", fd);
        must(::close(fd), "close");

        fd = bound_socket(any);
        me.name_port(local_address(fd).port(), "G");
        me.show("connect", connect_to(fd, me.link.other));
        say_names(me, "bound to any port, connected", fd);
        me.show("disconnect", disconnect(fd));
        say_names(me, "disconnected", fd);
        must(::close(fd), "close");

        fd = udp_socket(family);
        me.show("in use", bind_to(fd, local_address(me.link.fd)));
        me.show("not ours", bind_to(fd, make_address(family == AF_INET ? "198.51.100.1" : "2001:db8::1", 0)));
        Address cut = any;
        cut.len = 4;
        me.show("too short", bind_to(fd, cut));
        must(::close(fd), "close");
    }
    me.step();
    if (me.server)
        for (int i = 0; i < 3; ++i)
            me.say("%zd", receive_by(Form::kRecv, me.link.fd, 100, MSG_DONTWAIT).result);
    me.step();
    me.still_works(me.link);
}

// Of several sockets on a port, the one that is bound most exactly gets the datagram; connected is the most exact.
SCENARIO(most_exact_match)
{
    int any = -1, one = -1, connected = -1;
    std::uint16_t number = 0;
    if (me.server) {
        any = bound_shared(make_address("0.0.0.0", 0), kShareAddress);
        number = local_address(any).port();
    }
    number = me.share_port(number, me.server, "N");
    const Link target{me.link.fd, make_address("127.0.0.1", number)};
    const auto round = [&](const char *when) {
        me.step();
        if (!me.server) {
            for (int i = 0; i < 100; ++i) // a route that exists already must be left
                must(static_cast<int>(send_to(target.fd, "x", 1, target.other)), "sendto");
            must(static_cast<int>(send_to(target.fd, "x", 1, make_address("127.0.0.2", number))), "sendto");
        }
        me.step();
        if (me.server)
            me.say("%s: any %u, one %u, connected %u", when, me.drain(any), one < 0 ? 0 : me.drain(one),
                   connected < 0 ? 0 : me.drain(connected));
    };
    round("any");
    if (me.server)
        one = bound_shared(make_address("127.0.0.1", number), kShareAddress);
    round("any and one");
    if (me.server) {
        connected = bound_shared(make_address("127.0.0.1", number), kShareAddress);
        must(connect_to(connected, make_address("127.0.0.1", me.link.other.port())), "connect");
    }
    round("any, one and connected");
    if (me.server)
        must(disconnect(connected), "disconnect");
    if (me.server) { // else the kernel's order of the two decides
        must(::close(connected), "close");
        connected = -1;
    }
    round("closed");
    if (me.server) {
        must(::close(one), "close");
        one = -1;
    }
    round("any again");
    me.step();
    me.still_works(me.link);
}

// The same port of different addresses, in one process.
SCENARIO(addresses_of_one_port)
{
    std::map<int, std::string> sockets;
    std::uint16_t number = 0;
    if (me.server)
        for (const char *host : {"127.0.0.1", "127.0.0.2", "127.1.2.3", "::1"}) {
            Address a = make_address(host, number);
            const int fd = udp_socket(a.family());
            must(bind_to(fd, a), "bind");
            number = local_address(fd).port();
            sockets[fd] = host;
        }
    number = me.share_port(number, me.server, "N");
    if (!me.server) {
        const int six = bound_socket(make_address("::1", 0));
        for (int i = 0; i < 100; ++i)
            for (const char *host : {"127.0.0.1", "127.0.0.2", "127.1.2.3", "::1"})
                must(static_cast<int>(send_to(host[0] == ':' ? six : me.link.fd, host, std::strlen(host),
                                              make_address(host, number))),
                     "sendto");
    }
    me.step();
    for (const auto &[fd, host] : sockets) {
        unsigned count = 0;
        for (Received r; (r = receive_by(Form::kRecv, fd, 20, MSG_DONTWAIT)).result >= 0; ++count)
            if (r.data != host)
                die("%s got what was for %s", host.c_str(), r.data.c_str());
        me.say("%s: %u", host.c_str(), count);
    }
    me.step();
    me.still_works(me.link);
}

// SO_REUSEADDR without SO_REUSEPORT: one of the members has it all, until it closes.
EVERY_FAMILY(reuse_address)
{
    std::vector<int> members;
    std::uint16_t number = 0;
    if (me.server)
        for (int i = 0; i < 3; ++i) {
            members.push_back(bound_shared(make_address(me.bound.c_str(), number), kShareAddress));
            number = local_address(members[0]).port();
        }
    number = me.share_port(number, me.server, "N");
    for (int round = 0; round < 3; ++round) {
        if (!me.server)
            for (int i = 0; i < 100; ++i)
                must(static_cast<int>(send_to(me.link.fd, "x", 1, make_address(me.to.c_str(), number))), "sendto");
        me.step();
        int last = -1;
        for (std::size_t i = 0; i < members.size(); ++i)
            if (const unsigned count = me.drain(members[i]); count > 0) {
                me.say("round %d: member %zu got %u", round, i, count);
                last = static_cast<int>(i);
            }
        if (me.server && last >= 0) {
            must(::close(members[static_cast<std::size_t>(last)]), "close");
            members.erase(members.begin() + last);
        }
        me.step();
    }
    me.still_works(me.link);
}

// A group with SO_REUSEPORT: each flow has one member, which no other flow can change; when a member closes, the flows
// go on with the others, and nothing that was sent after is lost.
EVERY_FAMILY(reuse_port)
{
    constexpr std::size_t kMembers = 4, kFlows = 12;
    std::vector<int> members, flows;
    std::uint16_t number = 0;
    if (me.server)
        for (std::size_t i = 0; i < kMembers; ++i) {
            members.push_back(bound_shared(make_address(me.bound.c_str(), number), kSharePort));
            number = local_address(members[0]).port();
        }
    number = me.share_port(number, me.server, "N");
    if (!me.server)
        for (std::size_t i = 0; i < kFlows; ++i)
            flows.push_back(bound_socket(make_address(me.from.c_str(), 0)));
    while (me.server ? members.size() > 1 : me.hear() != 0) {
        if (me.server)
            me.tell(1);
        for (int block = 0; block < 2; ++block) { // two blocks: the assignment lasts
            for (int i = 0; i < 5; ++i)           // few enough for one member's queue
                for (const int fd : flows)
                    must(static_cast<int>(send_to(fd, "x", 1, make_address(me.to.c_str(), number))), "sendto");
            me.step();
            me.step();
        }
        if (!me.server)
            continue;
        std::map<std::uint16_t, std::set<std::size_t>> reached;
        std::map<std::uint16_t, int> counts;
        std::set<std::size_t> used;
        for (std::size_t i = 0; i < members.size(); ++i)
            for (Received r; (r = receive_by(Form::kRecvfrom, members[i], 20, MSG_DONTWAIT)).result >= 0;) {
                reached[r.from.port()].insert(i);
                ++counts[r.from.port()];
                used.insert(i);
            }
        bool one_each = true, all = counts.size() == kFlows;
        for (const auto &[flow, its] : reached)
            one_each = one_each && its.size() == 1;
        for (const auto &[flow, count] : counts)
            all = all && count == 10;
        me.say("%zu members: one a flow %s, all came %s", members.size(), one_each ? "yes" : "no", all ? "yes" : "no");
        must(::close(members.at(*used.begin())), "close"); // one that flows have
        members.erase(members.begin() + static_cast<long>(*used.begin()));
    }
    if (me.server)
        me.tell(0);
    me.step();
    me.still_works(me.link);
}

// SO_BINDTODEVICE and IP_TRANSPARENT and their like change where a socket is reached.
SCENARIO(bound_to_a_device)
{
    if (me.server)
        me.show("SO_BINDTODEVICE lo", ::setsockopt(me.link.fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
    me.step();
    me.deliver(me.link, {"by lo"});
    if (me.server) {
        me.take("recvmsg", me.link.fd, MSG_DONTWAIT);
        me.show("unbound", ::setsockopt(me.link.fd, SOL_SOCKET, SO_BINDTODEVICE, "", 0));
    }
    me.step();
    me.still_works(me.link);
}

// IPV6_V6ONLY: an IPv4 datagram is none for it, and the port is free for another.
SCENARIO(six_only)
{
    int six = -1, four = -1;
    std::uint16_t number = 0;
    if (me.server) {
        six = udp_socket(AF_INET6);
        const int on = 1;
        must(set_option(six, IPPROTO_IPV6, IPV6_V6ONLY, on), "IPV6_V6ONLY");
        must(bind_to(six, make_address("::", 0)), "bind");
        number = local_address(six).port();
        four = bound_socket(make_address("0.0.0.0", number));
    }
    number = me.share_port(number, me.server, "N");
    if (!me.server) {
        const int fd = bound_socket(make_address("::1", 0));
        for (int i = 0; i < 100; ++i) {
            must(static_cast<int>(send_to(fd, "six", 3, make_address("::1", number))), "sendto");
            must(static_cast<int>(send_to(me.link.fd, "four!", 5, make_address("127.0.0.1", number))), "sendto");
        }
    }
    me.step();
    if (me.server) {
        me.say("six: %zd, four: %zd", receive_by(Form::kRecv, six, 10, MSG_DONTWAIT).result,
               receive_by(Form::kRecv, four, 10, MSG_DONTWAIT).result);
        me.say("left: %u and %u", me.drain(six), me.drain(four));
    }
    me.step();
    me.still_works(me.link);
}
