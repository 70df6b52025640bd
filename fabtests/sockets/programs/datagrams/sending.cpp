// SPDX-License-Identifier: BSD-2-Clause
// Scenarios of sending: every call, connected or not, lengths, errors, corking, segments, a peer that is gone,
// broadcast.
#include <netinet/udp.h>
#include <sys/time.h>

#include <array>
#include <csignal>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/datagrams/side.hpp"

namespace {

using namespace fabtest;

// One call that sends `text`; `to` nullptr: to where the socket is connected.
struct SendForm {
    const char *name;
    bool addressed; // it can name a receiver
    ssize_t (*call)(int fd, const std::string &text, const Address *to, int flags);
};

ssize_t by_sendmsg(int fd, const std::string &text, const Address *to, int flags, bool many)
{
    std::string copy = text;
    const std::size_t cut = copy.size() / 3;
    iovec parts[3] = {{copy.data(), cut}, {nullptr, 0}, {copy.data() + cut, copy.size() - cut}};
    Address name = to != nullptr ? *to : Address{};
    mmsghdr m{};
    m.msg_hdr.msg_iov = parts;
    m.msg_hdr.msg_iovlen = 3;
    m.msg_hdr.msg_name = to != nullptr ? name.get() : nullptr;
    m.msg_hdr.msg_namelen = to != nullptr ? name.len : 0;
    if (!many)
        return ::sendmsg(fd, &m.msg_hdr, flags);
    const int sent = ::sendmmsg(fd, &m, 1, flags);
    return sent == 1 ? static_cast<ssize_t>(m.msg_len) : sent;
}

const SendForm kSendForms[] = {
    {"write", false,
     [](int fd, const std::string &t, const Address *, int) { return ::write(fd, t.data(), t.size()); }},
    {"writev", false,
     [](int fd, const std::string &t, const Address *, int) {
         std::string copy = t;
         iovec parts[2] = {{copy.data(), t.size() / 2}, {copy.data() + t.size() / 2, t.size() - t.size() / 2}};
         return ::writev(fd, parts, 2);
     }},
    {"send", false,
     [](int fd, const std::string &t, const Address *, int flags) { return ::send(fd, t.data(), t.size(), flags); }},
    {"sendto", true,
     [](int fd, const std::string &t, const Address *to, int flags) {
         return ::sendto(fd, t.data(), t.size(), flags, to ? to->get() : nullptr, to ? to->len : 0);
     }},
    {"sendmsg", true,
     [](int fd, const std::string &t, const Address *to, int flags) { return by_sendmsg(fd, t, to, flags, false); }},
    {"sendmmsg", true,
     [](int fd, const std::string &t, const Address *to, int flags) { return by_sendmsg(fd, t, to, flags, true); }}};

// Client: what each form returns for each length; server: what came of it, and that nothing else did.
void all_forms(const Datagrams &me, bool connected)
{
    const std::size_t lengths[] = {5, 0, 1, 1472, 1473, 30000, 65507, 65508, 65527, 65528, 70000};
    for (const SendForm &form : kSendForms) {
        for (const bool addressed : {false, true}) {
            if (addressed && !form.addressed)
                continue;
            for (const std::size_t len : lengths) {
                const std::string what =
                    std::string(form.name) + (addressed ? " to S" : "") + " of " + std::to_string(len);
                if (!me.server)
                    me.show(what.c_str(),
                            form.call(me.link.fd, pattern_text(len), addressed ? &me.link.other : nullptr, 0));
                me.step();
                if (me.server) {
                    me.take(what.c_str(), me.link.fd, MSG_DONTWAIT);
                    me.nothing_there("and", me.link.fd);
                }
                me.step();
            }
        }
    }
    me.say("%s", connected ? "connected" : "unconnected");
}

void await_error(int fd)
{
    pollfd p{fd, POLLERR, 0};
    if (::poll(&p, 1, patience::milliseconds()) != 1)
        die("no error came");
}

int pending_error(int fd)
{
    return int_option(fd, SOL_SOCKET, SO_ERROR);
}

// A port of the server's that nobody has any more; it was one that the client has a warm link to.
Link link_to_nobody(Datagrams &me)
{
    const Link gone = me.open("D", "T");
    if (!me.server)
        must(connect_to(gone.fd, gone.other), "connect");
    if (me.server)
        must(::close(gone.fd), "close");
    me.step();
    return gone;
}

} // namespace

EVERY_FAMILY(send_forms)
{
    all_forms(me, false);
    me.still_works(me.link);
}

EVERY_FAMILY(send_forms_connected)
{
    if (!me.server)
        must(connect_to(me.link.fd, me.link.other), "connect");
    me.warm(me.link);
    all_forms(me, true);
    me.still_works(me.link);
}

SCENARIO(send_flags)
{
    const std::vector<std::pair<const char *, int>> flags = {{"DONTWAIT", MSG_DONTWAIT}, {"NOSIGNAL", MSG_NOSIGNAL},
                                                             {"CONFIRM", MSG_CONFIRM},   {"DONTROUTE", MSG_DONTROUTE},
                                                             {"EOR", MSG_EOR},           {"OOB", MSG_OOB},
                                                             {"FASTOPEN", MSG_FASTOPEN}, {"TRUNC", MSG_TRUNC}};
    for (const SendForm &form : kSendForms)
        for (const auto &[name, value] : flags) {
            if (!form.addressed)
                continue;
            if (!me.server)
                me.show((std::string(form.name) + " " + name).c_str(),
                        form.call(me.link.fd, "flagged", &me.link.other, value));
            me.step();
            if (me.server)
                me.take(name, me.link.fd, MSG_DONTWAIT);
            me.step();
        }
    me.still_works(me.link);
}

// MSG_MORE and UDP_CORK: pieces of several calls make one datagram.
EVERY_FAMILY(corked)
{
    if (!me.server) {
        me.show("MORE", send_to(me.link.fd, "one ", 4, me.link.other, MSG_MORE));
        me.show("MORE", send_to(me.link.fd, "two ", 4, me.link.other, MSG_MORE));
    }
    me.step();
    if (me.server)
        me.nothing_there("meanwhile", me.link.fd);
    me.step();
    if (!me.server)
        me.show("the last", send_to(me.link.fd, "three", 5, me.link.other));
    me.step();
    if (me.server)
        me.take("corked", me.link.fd, MSG_DONTWAIT);
    me.step();
    if (!me.server) {
        const int on = 1, off = 0;
        me.show("UDP_CORK", set_option(me.link.fd, IPPROTO_UDP, UDP_CORK, on));
        me.show("sendto", send_to(me.link.fd, "four ", 5, me.link.other));
        me.show("sendto", send_to(me.link.fd, "five", 4, me.link.other));
        me.show("UDP_CORK", set_option(me.link.fd, IPPROTO_UDP, UDP_CORK, off));
    }
    me.step();
    if (me.server) {
        me.take("corked", me.link.fd, MSG_DONTWAIT);
        me.nothing_there("and", me.link.fd);
    }
    me.step();
    me.still_works(me.link);
}

// UDP_SEGMENT cuts one send into many datagrams; UDP_GRO may join what was cut.
EVERY_FAMILY(segments)
{
    if (!me.server) {
        const int size = 100;
        me.show("UDP_SEGMENT", set_option(me.link.fd, IPPROTO_UDP, UDP_SEGMENT, size));
        me.show("sendto", send_to(me.link.fd, pattern_text(350).data(), 350, me.link.other));
        const int off = 0;
        me.show("UDP_SEGMENT", set_option(me.link.fd, IPPROTO_UDP, UDP_SEGMENT, off));
        me.show("sendto", send_to(me.link.fd, pattern_text(350).data(), 350, me.link.other));
    }
    me.step();
    if (me.server) {
        for (int i = 0; i < 6; ++i)
            me.take("one", me.link.fd, MSG_DONTWAIT);
        const int on = 1;
        me.show("UDP_GRO", set_option(me.link.fd, IPPROTO_UDP, UDP_GRO, on));
    }
    me.step();
    me.deliver(me.link, {"whole"});
    if (me.server)
        me.take("with UDP_GRO", me.link.fd, MSG_DONTWAIT);
    me.step();
    me.still_works(me.link);
}

// Several in one call; the first that fails ends it.
EVERY_FAMILY(sendmmsg_batches)
{
    for (const int bad : {-1, 0, 2}) { // that one is too long
        if (!me.server) {
            mmsghdr messages[4]{};
            iovec parts[4];
            std::string texts[4] = {"one", "", pattern_text(5000), "four"};
            if (bad >= 0)
                texts[bad] = pattern_text(66000);
            for (int i = 0; i < 4; ++i) {
                parts[i] = {texts[i].data(), texts[i].size()};
                messages[i].msg_hdr.msg_iov = &parts[i];
                messages[i].msg_hdr.msg_iovlen = 1;
                messages[i].msg_hdr.msg_name = const_cast<sockaddr *>(me.link.other.get());
                messages[i].msg_hdr.msg_namelen = me.link.other.len;
            }
            me.show("sendmmsg", ::sendmmsg(me.link.fd, messages, 4, 0));
            me.say("lengths %u %u %u %u", messages[0].msg_len, messages[1].msg_len, messages[2].msg_len,
                   messages[3].msg_len);
        }
        me.step();
        if (me.server)
            while (me.take("one", me.link.fd, MSG_DONTWAIT).result >= 0) {
            }
        me.step();
    }
    me.still_works(me.link);
}

// Addresses that are none, in all calls that take one.
SCENARIO(wrong_addresses)
{
    if (!me.server) {
        for (const SendForm &form : kSendForms) {
            if (!form.addressed)
                continue;
            const auto attempt = [&](const char *what, const Address &a) {
                me.show((std::string(form.name) + ": " + what).c_str(), form.call(me.link.fd, "text", &a, 0));
            };
            Address a = me.link.other;
            a.set_port(0);
            attempt("port 0", a);
            a = me.link.other;
            a.len = 8;
            attempt("too short", a);
            a = me.link.other;
            a.storage.ss_family = AF_UNSPEC;
            attempt("AF_UNSPEC", a);
            a.storage.ss_family = AF_UNIX;
            attempt("AF_UNIX", a);
            attempt("IPv6 on an IPv4 socket", make_address("::1", me.link.other.port()));
            attempt("broadcast", make_address("255.255.255.255", me.link.other.port()));
        }
        me.show("bad buffer", send_to(me.link.fd, reinterpret_cast<char *>(8), 8, me.link.other));
        me.show("bad address", ::sendto(me.link.fd, "x", 1, 0, reinterpret_cast<sockaddr *>(8), 16));
    }
    me.step();
    if (me.server) // AF_UNSPEC means AF_INET here
        me.say("came: %u", me.drain(me.link.fd));
    me.step();
    me.still_works(me.link);
}

// A connected socket may still name another receiver, without being connected to it.
EVERY_FAMILY(connected_sends_elsewhere)
{
    const Link other = me.open("D", "T");
    if (!me.server) {
        must(connect_to(me.link.fd, me.link.other), "connect");
        me.show("sendto T", send_to(me.link.fd, "to T", 4, other.other));
        me.show("send", ::send(me.link.fd, "to S", 4, 0));
        me.say("still connected to %s", me.name(peer_address(me.link.fd)).c_str());
    }
    me.step();
    if (me.server) {
        me.take("T", other.fd, MSG_DONTWAIT);
        me.take("S", me.link.fd, MSG_DONTWAIT);
        must(static_cast<int>(send_to(other.fd, "answer", 6, me.link.other)), "sendto");
    }
    me.step();
    if (!me.server)
        me.nothing_there("an answer of T to one connected to S", me.link.fd);
    me.step();
    me.still_works(me.link);
    me.still_works(other);
}

EVERY_FAMILY(shutdown_for_writing)
{
    if (!me.server) {
        me.show("shutdown of an unconnected one", ::shutdown(me.link.fd, SHUT_WR));
        must(connect_to(me.link.fd, me.link.other), "connect");
        me.show("shutdown", ::shutdown(me.link.fd, SHUT_WR));
        for (const SendForm &form : kSendForms) // EPIPE, and no SIGPIPE, which would end the program
            me.show(form.name, form.call(me.link.fd, "text", nullptr, 0));
        me.show("sendto S", send_to(me.link.fd, "text", 4, me.link.other));
        pollfd p{me.link.fd, POLLIN | POLLOUT | POLLRDHUP, 0};
        me.show("poll", ::poll(&p, 1, 0));
        me.say("%s", event_text(static_cast<unsigned>(p.revents)).c_str());
    }
    me.step();
    if (me.server) {
        me.say("came: %u", me.drain(me.link.fd));
        must(static_cast<int>(send_to(me.link.fd, "back", 4, me.link.other)), "sendto");
    }
    me.step();
    if (!me.server) {
        me.take("it still receives", me.link.fd, MSG_DONTWAIT);
        me.show("shutdown", ::shutdown(me.link.fd, SHUT_RDWR));
        me.show("recv", receive_by(Form::kRecv, me.link.fd, 10));
    }
    me.step();
}

// The other end was closed: the next call after the refused datagram says so, once.
EVERY_FAMILY(refused)
{
    const Link gone = link_to_nobody(me);
    if (!me.server) {
        for (const Form form : kForms) {
            me.show("send", ::send(gone.fd, "x", 1, 0));
            me.show(form_name(form), receive_by(form, gone.fd, 10)); // would wait for ever without the error
        }
        me.nothing_there("once only", gone.fd);
        for (const SendForm &form : kSendForms) {
            me.show("send", ::send(gone.fd, "x", 1, 0));
            await_error(gone.fd);
            me.show(form.name, form.call(gone.fd, "text", nullptr, 0)); // the error of the datagram before
            me.show("again", form.call(gone.fd, "text", nullptr, 0));
            await_error(gone.fd);
            me.say("SO_ERROR %s", strerrorname_np(pending_error(gone.fd)));
            me.say("SO_ERROR %d", pending_error(gone.fd));
        }
        me.show("send", ::send(gone.fd, "x", 1, 0));
        pollfd p{gone.fd, POLLIN | POLLOUT, 0};
        await_error(gone.fd);
        me.show("poll", ::poll(&p, 1, -1));
        me.say("%s", event_text(static_cast<unsigned>(p.revents)).c_str());
    }
    me.step();
    me.still_works(me.link);
}

// An unconnected sender is not told, unless it asks for errors.
EVERY_FAMILY(refused_unconnected)
{
    const Link gone = me.open("D", "T");
    if (me.server)
        must(::close(gone.fd), "close");
    me.step();
    if (!me.server) {
        for (int i = 0; i < 5; ++i)
            me.show("sendto", send_to(gone.fd, "x", 1, gone.other));
        me.nothing_there("no error", gone.fd);
        const int on = 1;
        must(set_option(gone.fd, IPPROTO_IP, IP_RECVERR, on), "IP_RECVERR"); // v4-mapped ones too
        if (local_address(gone.fd).family() == AF_INET6)
            must(set_option(gone.fd, IPPROTO_IPV6, IPV6_RECVERR, on), "IPV6_RECVERR");
        me.show("sendto", send_to(gone.fd, "lost", 4, gone.other));
        await_error(gone.fd);
        me.show("recv", receive_by(Form::kRecv, gone.fd, 10));
        Received r = receive_by(Form::kRecvmsg, gone.fd, 100, MSG_ERRQUEUE, 512);
        me.show("ERRQUEUE", r);
        me.show("ERRQUEUE", receive_by(Form::kRecvmsg, gone.fd, 100, MSG_ERRQUEUE, 512));
    }
    me.step();
    me.still_works(me.link);
}

// Somebody else binds the port of one that was closed: it gets what is sent there from then on.
EVERY_FAMILY(port_is_taken_over)
{
    const Link gone = link_to_nobody(me);
    if (!me.server) {
        me.show("send", ::send(gone.fd, "nobody", 6, 0));
        me.show("recv", receive_by(Form::kRecv, gone.fd, 10));
    }
    const auto number = me.share_port(gone.other.port(), !me.server, "T");
    Link again = gone;
    if (me.server) {
        again.fd = bound_socket(make_address(me.bound.c_str(), number));
    }
    me.step();
    if (!me.server)
        me.show("send", ::send(gone.fd, "heir", 4, 0));
    me.step();
    if (me.server)
        me.take("heir", again.fd, MSG_DONTWAIT);
    me.step();
    me.warm(again);
    me.still_works(again);
    me.still_works(me.link);
}

// The harness kills the server when both have said "ready", and then, when it is dead, sends SIGUSR1 to the client.
SCENARIO(killed)
{
    sigset_t dead;
    sigemptyset(&dead);
    sigaddset(&dead, SIGUSR1);
    must(::sigprocmask(SIG_BLOCK, &dead, nullptr), "sigprocmask");
    if (!me.server)
        must(connect_to(me.link.fd, me.link.other), "connect");
    me.warm(me.link);
    me.say("ready");
    if (me.server) {
        ::pause();
        return;
    }
    int number = 0;
    must(-::sigwait(&dead, &number), "sigwait");
    me.show("send", ::send(me.link.fd, "x", 1, 0));
    me.show("recv", receive_by(Form::kRecv, me.link.fd, 10));
    me.show("send", ::send(me.link.fd, "x", 1, 0));
    await_error(me.link.fd);
    me.show("send", ::send(me.link.fd, "x", 1, 0));
}

SCENARIO(broadcast)
{
    // Bound to any address: who is bound to 127.0.0.1 gets no broadcasts.
    const Address any = make_address("0.0.0.0", 0);
    int members[2] = {-1, -1};
    std::uint16_t number = 0;
    if (me.server)
        for (int &fd : members) {
            fd = udp_socket(AF_INET);
            const int on = 1;
            must(set_option(fd, SOL_SOCKET, SO_REUSEADDR, on), "SO_REUSEADDR");
            Address a = any;
            a.set_port(number);
            must(bind_to(fd, a), "bind");
            number = local_address(fd).port();
        }
    number = me.share_port(number, me.server, "B");
    const Address all = make_address("127.255.255.255", number);
    if (!me.server) {
        me.show("without SO_BROADCAST", send_to(me.link.fd, "no", 2, all));
        me.show("connect without", connect_to(me.link.fd, all));
        const int on = 1;
        must(set_option(me.link.fd, SOL_SOCKET, SO_BROADCAST, on), "SO_BROADCAST");
        me.show("with SO_BROADCAST", send_to(me.link.fd, "to all", 6, all));
    }
    me.step();
    for (const int fd : members)
        if (me.server) {
            me.take("member", fd, MSG_DONTWAIT);
            me.nothing_there("and", fd);
        }
    if (me.server)
        me.nothing_there("bound to 127.0.0.1", me.link.fd);
    me.step();
    me.still_works(me.link);
}
