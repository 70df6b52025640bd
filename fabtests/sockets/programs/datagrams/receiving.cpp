// SPDX-License-Identifier: BSD-2-Clause
// Scenarios of receiving: every call with every flag, lengths, errors, time-outs, what is left in the queue.
#include <netinet/udp.h>
#include <sys/time.h>

#include <vector>

#include "fabtests/sockets/programs/datagrams/side.hpp"

namespace {

using namespace fabtest;

struct Flags {
    const char *name;
    int value;
};

constexpr Flags kFlags[] = {{"0", 0},
                            {"PEEK", MSG_PEEK},
                            {"TRUNC", MSG_TRUNC},
                            {"PEEK|TRUNC", MSG_PEEK | MSG_TRUNC},
                            {"DONTWAIT", MSG_DONTWAIT},
                            {"WAITALL", MSG_WAITALL},
                            {"CMSG_CLOEXEC", MSG_CMSG_CLOEXEC},
                            {"OOB", MSG_OOB}};

std::string numbered(const char *prefix, int number)
{
    return prefix + std::to_string(number);
}

} // namespace

EVERY_FAMILY(receive_forms)
{
    for (const Form form : kForms) {
        for (const Flags &flags : kFlags) {
            if (flags.value != 0 && (form == Form::kRead || form == Form::kReadv))
                continue;
            for (const std::size_t sent : {0U, 5U, 3000U})
                for (const std::size_t room : {0U, 3U, 5U, 4096U}) {
                    me.deliver(me.link, {pattern_text(sent)});
                    if (me.server) {
                        const std::string call = std::string(form_name(form)) + " " + flags.name + " of " +
                                                 std::to_string(sent) + " into " + std::to_string(room);
                        me.show(call.c_str(), receive_by(form, me.link.fd, room, flags.value));
                        me.say("left: %u", me.drain(me.link.fd));
                    }
                    me.step();
                }
        }
    }
    me.still_works(me.link);
}

// The largest datagram of the family, received whole and cut.
EVERY_FAMILY(largest)
{
    const std::size_t most = me.link.other.family() == AF_INET6 && me.to.find('.') == std::string::npos ? 65527 : 65507;
    const std::string text = pattern_text(most);
    for (int i = 0; i < 3; ++i) {
        me.deliver(me.link, {text});
        if (me.server) {
            me.show("recvfrom", receive_by(Form::kRecvfrom, me.link.fd, 70000));
            me.say("left: %u", me.drain(me.link.fd));
        }
        me.step();
    }
    me.deliver(me.link, {text, "next"});
    if (me.server) {
        me.show("recvmsg", receive_by(Form::kRecvmsg, me.link.fd, 1000));
        me.take("the next", me.link.fd);
    }
    me.step();
    me.still_works(me.link);
}

// Many datagrams in one call: what is there, no more than asked for, each with its own length and address.
EVERY_FAMILY(recvmmsg_batches)
{
    struct Case {
        const char *name;
        unsigned count;
        int flags;
        timespec limit; // tv_nsec -1: none; -2: a wrong one
    };
    const Case cases[] = {{"WAITFORONE of 8", 8, MSG_WAITFORONE, {0, -1}},
                          {"DONTWAIT of 8", 8, MSG_DONTWAIT, {0, -1}},
                          {"3", 3, 0, {0, -1}},
                          {"5 in an hour", 5, 0, {3600, 0}},
                          {"5 in no time", 5, 0, {0, 0}},
                          {"wrong time", 5, 0, {0, -2}},
                          {"0", 0, 0, {0, -1}},
                          {"PEEK of 3", 3, MSG_PEEK, {0, -1}}};
    for (const Case &c : cases) {
        me.deliver(me.link, {"one", "", "three", pattern_text(500), "five"});
        if (me.server) {
            mmsghdr messages[8]{};
            iovec parts[8];
            char bufs[8][100];
            Address from[8];
            for (int i = 0; i < 8; ++i) {
                parts[i] = {bufs[i], sizeof bufs[i]};
                messages[i].msg_hdr.msg_iov = &parts[i];
                messages[i].msg_hdr.msg_iovlen = 1;
                messages[i].msg_hdr.msg_name = from[i].get();
                messages[i].msg_hdr.msg_namelen = from[i].len;
            }
            timespec limit = {c.limit.tv_sec, c.limit.tv_nsec == -2 ? -1 : c.limit.tv_nsec};
            const int got =
                ::recvmmsg(me.link.fd, messages, c.count, c.flags, c.limit.tv_nsec == -1 ? nullptr : &limit);
            me.show((std::string("recvmmsg ") + c.name).c_str(), got);
            for (int i = 0; i < got; ++i) {
                from[i].len = messages[i].msg_hdr.msg_namelen;
                me.say("%d: %u bytes from %s flags %d: %.3s", i, messages[i].msg_len, me.name(from[i]).c_str(),
                       messages[i].msg_hdr.msg_flags, std::string(bufs[i], std::min(3U, messages[i].msg_len)).c_str());
            }
            me.say("left: %u", me.drain(me.link.fd));
            me.show("nothing there", ::recvmmsg(me.link.fd, messages, 2, MSG_DONTWAIT, nullptr));
        }
        me.step();
    }
    me.still_works(me.link);
}

// recvmmsg without WAITFORONE waits for all it was asked for.
SCENARIO(recvmmsg_waits_for_all)
{
    if (!me.server) {
        for (int i = 0; i < 4; ++i) {
            send_to(me.link.fd, "x", 1, me.link.other);
            me.hear(); // the server sees that it is not enough
        }
        send_to(me.link.fd, "last", 4, me.link.other);
    } else {
        for (int i = 0; i < 4; ++i) {
            pollfd p{me.link.fd, POLLIN, 0};
            must(::poll(&p, 1, -1), "poll");
            char byte;
            if (i < 2)
                must(static_cast<int>(::recv(me.link.fd, &byte, 1, 0)), "recv");
            me.tell(0);
        }
        mmsghdr messages[3]{};
        char bufs[3][8];
        iovec parts[3];
        for (int i = 0; i < 3; ++i) {
            parts[i] = {bufs[i], sizeof bufs[i]};
            messages[i].msg_hdr.msg_iov = &parts[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        me.show("recvmmsg of 3", ::recvmmsg(me.link.fd, messages, 3, 0, nullptr));
        me.say("lengths %u %u %u", messages[0].msg_len, messages[1].msg_len, messages[2].msg_len);
    }
    me.step();
    me.still_works(me.link);
}

// An error behind a message is the next call's, whatever that is.
SCENARIO(recvmmsg_leaves_an_error)
{
    for (const std::size_t parts_of_second : {std::size_t{1}, std::size_t{2000}}) {
        me.deliver(me.link, {"one", "two"});
        if (me.server) {
            char buf[8];
            iovec good = {buf, sizeof buf};
            iovec bad = {reinterpret_cast<void *>(8), sizeof buf};
            mmsghdr messages[2]{};
            messages[0].msg_hdr.msg_iov = &good;
            messages[0].msg_hdr.msg_iovlen = 1;
            messages[1].msg_hdr.msg_iov = &bad;
            messages[1].msg_hdr.msg_iovlen = parts_of_second;
            me.show("recvmmsg", ::recvmmsg(me.link.fd, messages, 2, MSG_DONTWAIT, nullptr));
            pollfd p{me.link.fd, POLLIN, 0};
            must(::poll(&p, 1, 0), "poll");
            me.say("poll %s", event_text(static_cast<unsigned>(p.revents)).c_str());
            me.show("recv", ::recv(me.link.fd, buf, sizeof buf, MSG_DONTWAIT));
            me.say("left: %u", me.drain(me.link.fd));
        }
        me.step();
    }
    me.still_works(me.link);
}

// FIONREAD tells the size of the next datagram, and poll tells an empty one from none.
EVERY_FAMILY(size_of_the_next)
{
    me.deliver(me.link, {"", "12345", pattern_text(3000), ""});
    if (me.server) {
        for (int i = 0; i < 5; ++i) {
            int size = -1;
            me.show("FIONREAD", ::ioctl(me.link.fd, FIONREAD, &size));
            pollfd p{me.link.fd, POLLIN, 0};
            const int ready = ::poll(&p, 1, 0);
            me.say("size %d, poll %d %s", size, ready, event_text(static_cast<unsigned>(p.revents)).c_str());
            me.take("recvmsg", me.link.fd, MSG_DONTWAIT);
        }
    }
    me.step();
    me.still_works(me.link);
}

// A peeked datagram stays, for whatever call comes next; a cut one is gone with its rest.
EVERY_FAMILY(peek_then_receive)
{
    for (const Form form : kForms) {
        me.deliver(me.link, {"first", "second"});
        if (me.server) {
            for (int i = 0; i < 3; ++i)
                me.show("peek", receive_by(Form::kRecvmsg, me.link.fd, 3, MSG_PEEK));
            me.show(form_name(form), receive_by(form, me.link.fd, 3));
            me.show(form_name(form), receive_by(form, me.link.fd, 10));
            me.nothing_there("no more", me.link.fd);
        }
        me.step();
    }
    me.still_works(me.link);
}

SCENARIO(peek_offset)
{
    me.deliver(me.link, {"0123456789", "abcdefghij"});
    if (me.server) {
        const int offset = 4;
        me.show("SO_PEEK_OFF", set_option(me.link.fd, SOL_SOCKET, SO_PEEK_OFF, offset));
        for (int i = 0; i < 3; ++i)
            me.show("peek", receive_by(Form::kRecv, me.link.fd, 3, MSG_PEEK));
        me.show("recv", receive_by(Form::kRecv, me.link.fd, 20));
        me.show("peek", receive_by(Form::kRecv, me.link.fd, 20, MSG_PEEK));
        const int off = -1;
        me.show("SO_PEEK_OFF", set_option(me.link.fd, SOL_SOCKET, SO_PEEK_OFF, off));
        me.show("recv", receive_by(Form::kRecv, me.link.fd, 20));
    }
    me.step();
    me.still_works(me.link);
}

EVERY_FAMILY(nothing_to_receive)
{
    if (me.server) {
        set_nonblocking(me.link.fd, true);
        for (const Form form : kForms)
            me.show(form_name(form), receive_by(form, me.link.fd, 10));
        set_nonblocking(me.link.fd, false);
        for (const Form form : {Form::kRecv, Form::kRecvfrom, Form::kRecvmsg, Form::kRecvmmsg})
            me.show(form_name(form), receive_by(form, me.link.fd, 10, MSG_DONTWAIT));
        me.show("ERRQUEUE", receive_by(Form::kRecvmsg, me.link.fd, 10, MSG_ERRQUEUE));
        me.show("read of 0", receive_by(Form::kRead, me.link.fd, 0));
        me.show("recv of 0 DONTWAIT", receive_by(Form::kRecv, me.link.fd, 0, MSG_DONTWAIT));
    }
    me.step();
    me.still_works(me.link);
}

EVERY_FAMILY(receive_timeout)
{
    if (me.server) {
        const timeval limit{0, 20000};
        me.show("SO_RCVTIMEO", set_option(me.link.fd, SOL_SOCKET, SO_RCVTIMEO, limit));
        for (const Form form : kForms)
            me.show(form_name(form), receive_by(form, me.link.fd, 10));
        const timeval none{};
        me.show("SO_RCVTIMEO", set_option(me.link.fd, SOL_SOCKET, SO_RCVTIMEO, none));
        const timeval wrong{0, 2000000};
        me.show("SO_RCVTIMEO", set_option(me.link.fd, SOL_SOCKET, SO_RCVTIMEO, wrong));
        me.show("SO_SNDTIMEO", set_option(me.link.fd, SOL_SOCKET, SO_SNDTIMEO, limit));
    }
    me.step();
    me.still_works(me.link);
}

// Wrong arguments of the calls.
SCENARIO(receive_faults)
{
    me.deliver(me.link, {"one", "two", "three", "four", "five"});
    if (me.server) {
        char buf[8];
        auto *nowhere = reinterpret_cast<char *>(8);
        Address from;
        socklen_t len = 4; // cut, and the real length returned
        me.show("short address", ::recvfrom(me.link.fd, buf, sizeof buf, 0, from.get(), &len));
        me.say("length %u, family %d", len, from.family());
        socklen_t none = 0;
        me.show("no room for the address", ::recvfrom(me.link.fd, buf, sizeof buf, 0, from.get(), &none));
        me.say("length %u", none);
        me.show("bad buffer", ::recv(me.link.fd, nowhere, 8, 0));
        me.take("the next", me.link.fd);
        iovec part{buf, sizeof buf};
        msghdr m{};
        m.msg_iov = &part;
        m.msg_iovlen = 2000;
        me.show("too many pieces", ::recvmsg(me.link.fd, &m, 0));
        m.msg_iovlen = 0;
        me.show("no piece", ::recvmsg(me.link.fd, &m, 0));
        me.say("flags %d", m.msg_flags);
        me.say("left: %u", me.drain(me.link.fd));
    }
    me.step();
    me.still_works(me.link);
}

namespace {

constexpr int kFlood = 8000; // datagrams: more than any buffer on the way holds

// How many of the flood the queue has kept: in order, and whole.
int take_flood(int fd)
{
    int kept = 0;
    int last = -1;
    for (Received r; (r = receive_by(Form::kRecvmsg, fd, 2000, MSG_DONTWAIT)).result >= 0; ++kept) {
        const int number = std::atoi(r.data.c_str() + std::strlen("datagram "));
        if (number <= last || r.data != numbered("datagram ", number) + pattern_text(1300))
            die("after %d came %.20s", last, r.data.c_str());
        last = number;
    }
    return kept;
}

} // namespace

// A queue that is full drops what comes, keeps what it has, and counts.
EVERY_FAMILY(overflow)
{
    const auto prepare = [&me](int fd) {
        const int size = 4096, on = 1;
        must(set_option(fd, SOL_SOCKET, SO_RCVBUF, size), "SO_RCVBUF");
        if (me.server)
            must(set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, on), "SO_RXQ_OVFL");
    };
    const Link small = me.open("D", "T", prepare);
    unsigned dropped_before = 0;
    for (int round = 0; round < 3; ++round) {
        if (!me.server)
            for (int i = 0; i < kFlood; ++i) {
                const std::string text = numbered("datagram ", i) + pattern_text(1300);
                if (send_to(small.fd, text.data(), text.size(), small.other) != static_cast<ssize_t>(text.size()))
                    me.say("%d: %s", i, strerrorname_np(errno)); // drops are not the sender's business
            }
        me.step();
        const int kept = me.server ? take_flood(small.fd) : 0;
        me.step();
        me.deliver(small, {"afterwards"});
        if (me.server) {
            Received r = receive_by(Form::kRecvmsg, small.fd, 1000, MSG_DONTWAIT, 100);
            me.say("some kept: %s, some dropped: %s, then \"%s\"", kept > 0 ? "yes" : "no",
                   kept < kFlood ? "yes" : "no", r.data.c_str());
            const unsigned dropped = static_cast<unsigned>(kFlood - kept) + dropped_before;
            if (r.control != "RXQ_OVFL " + std::to_string(dropped))
                die("%u dropped, and it says %s", dropped, r.control.c_str());
            dropped_before = dropped;
        }
        me.step();
    }
    me.still_works(small);
    if (!me.server) { // what the kernel drops, too; who sends so has the kernel send
        const int off = 0;
        must(set_option(small.fd, IPPROTO_UDP, UDP_CORK, off), "UDP_CORK");
        for (int i = 0; i < kFlood; ++i)
            if (send_to(small.fd, "", 0, small.other) != 0)
                die("send: %s", strerrorname_np(errno));
    }
    me.step();
    while (me.server && receive_by(Form::kRecvmsg, small.fd, 1, MSG_DONTWAIT, 100).result >= 0) {
    }
    ::close(small.fd);
    const Link fresh = me.open("E", "U", prepare); // in the place of the closed one
    me.deliver(fresh, {"nothing is lost yet"});
    if (me.server)
        me.say("losses of a new socket: \"%s\"",
               receive_by(Form::kRecvmsg, fresh.fd, 100, MSG_DONTWAIT, 100).control.c_str());
    me.step();
    me.still_works(me.link);
}

EVERY_FAMILY(shutdown_for_reading)
{
    me.deliver(me.link, {"before"});
    if (me.server) {
        me.show("shutdown of an unconnected one", ::shutdown(me.link.fd, SHUT_RD));
        must(connect_to(me.link.fd, me.link.other), "connect");
        me.show("shutdown", ::shutdown(me.link.fd, SHUT_RD));
        pollfd p{me.link.fd, POLLIN | POLLOUT | POLLRDHUP, 0};
        me.show("poll", ::poll(&p, 1, 0));
        me.say("%s", event_text(static_cast<unsigned>(p.revents)).c_str());
        me.take("what was there", me.link.fd);
        me.show("recv", receive_by(Form::kRecv, me.link.fd, 10));
        me.show("recv DONTWAIT", receive_by(Form::kRecv, me.link.fd, 10, MSG_DONTWAIT));
    }
    me.step();
    me.deliver(me.link, {"after"});
    if (me.server) {
        me.take("what came later", me.link.fd);
        me.show("send", ::send(me.link.fd, "out", 3, 0));
    }
    me.step();
    if (!me.server)
        me.take("recvmsg", me.link.fd);
    me.step();
}
