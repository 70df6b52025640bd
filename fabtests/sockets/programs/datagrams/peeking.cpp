// SPDX-License-Identifier: BSD-2-Clause
// Scenarios of SO_PEEK_OFF (socket(7)): a peek goes on where the last one ended, datagram by datagram, and a plain
// receive takes the place back by what it returns.
#include <sys/time.h>
#include <sys/wait.h>

#include <random>

#include "fabtests/sockets/programs/datagrams/side.hpp"

namespace {

using namespace fabtest;

void set_offset(const Datagrams &me, int offset)
{
    me.show("SO_PEEK_OFF", set_option(me.link.fd, SOL_SOCKET, SO_PEEK_OFF, offset));
}

void show_offset(const Datagrams &me)
{
    int offset = -100;
    socklen_t size = sizeof offset;
    me.show("getsockopt", ::getsockopt(me.link.fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &size));
    me.say("at %d", offset);
}

void peek(const Datagrams &me, std::size_t room, int flags = 0)
{
    me.show("peek", receive_by(Form::kRecvmsg, me.link.fd, room, MSG_PEEK | MSG_DONTWAIT | flags));
    show_offset(me);
}

void take(const Datagrams &me, std::size_t room, int flags = 0)
{
    me.show("recv", receive_by(Form::kRecvmsg, me.link.fd, room, MSG_DONTWAIT | flags));
    show_offset(me);
}

// A control message makes it the kernel's.
void send_by_kernel(const Link &link, const char *text)
{
    constexpr int kTtl = 9;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof kTtl)] = {};
    iovec part{const_cast<char *>(text), std::strlen(text)};
    msghdr m{};
    m.msg_name = const_cast<sockaddr *>(link.other.get());
    m.msg_namelen = link.other.len;
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    cmsghdr *const header = CMSG_FIRSTHDR(&m);
    header->cmsg_level = IPPROTO_IP;
    header->cmsg_type = IP_TTL;
    header->cmsg_len = CMSG_LEN(sizeof kTtl);
    std::memcpy(CMSG_DATA(header), &kTtl, sizeof kTtl);
    must(static_cast<int>(::sendmsg(link.fd, &m, 0)), "sendmsg");
}

} // namespace

// From one datagram to the next, over empty ones, to behind the last.
EVERY_FAMILY(peek_offset_walks)
{
    me.deliver(me.link, {"0123456789", "", "abcdefghij", "", "XYZ"});
    if (me.server) {
        show_offset(me);
        set_offset(me, 4);
        for (int i = 0; i < 9; ++i)
            peek(me, 3);
        set_offset(me, 0);
        for (int i = 0; i < 6; ++i)
            peek(me, 20);
        set_offset(me, 12);
        peek(me, 8); // what is left of it, exactly
        set_offset(me, 100);
        peek(me, 8);
        set_offset(me, -1);
        peek(me, 20);
        me.say("left: %u", me.drain(me.link.fd));
    }
    me.step();
    me.still_works(me.link);
}

EVERY_FAMILY(peek_offset_and_receive)
{
    me.deliver(me.link, {"0123456789", "abcdefghij", "", "KLMNOPQRST", "UVWXYZ"});
    if (me.server) {
        set_offset(me, 0);
        for (int i = 0; i < 3; ++i)
            peek(me, 6);
        take(me, 20);
        peek(me, 4);
        take(me, 3); // cut: it counts for what was copied
        peek(me, 4);
        take(me, 3);
        take(me, 3, MSG_TRUNC);
        peek(me, 2, MSG_TRUNC);
        take(me, 20);
        peek(me, 20);
        take(me, 20);
    }
    me.step();
    me.still_works(me.link);
}

// What comes when the option is on, behind what was there before.
EVERY_FAMILY(peek_offset_goes_on)
{
    me.deliver(me.link, {"0123456789", "abcdefghij"});
    if (me.server) {
        set_offset(me, 5);
        peek(me, 20);
        peek(me, 20);
        peek(me, 20);
    }
    me.step();
    me.deliver(me.link, {"later", "", "and more"});
    if (me.server) {
        peek(me, 3);
        take(me, 20);
        peek(me, 20);
        for (int i = 0; i < 3; ++i)
            peek(me, 20);
        set_offset(me, 12);
        peek(me, 20);
        peek(me, 20);
        for (int i = 0; i < 5; ++i)
            take(me, 20);
    }
    me.step();
    me.deliver(me.link, {"at last"});
    if (me.server) {
        peek(me, 2);
        peek(me, 20);
        take(me, 20);
    }
    me.step();
    me.still_works(me.link);
}

// A peek behind the last waits for one more.
SCENARIO(peek_offset_waits)
{
    me.deliver(me.link, {"0123456789", "abcdefghij"});
    if (me.server) {
        set_offset(me, 20);
        const timeval brief{0, 20000};
        const timeval none{};
        me.show("SO_RCVTIMEO", set_option(me.link.fd, SOL_SOCKET, SO_RCVTIMEO, brief));
        me.show("peek", receive_by(Form::kRecv, me.link.fd, 20, MSG_PEEK));
        me.show("SO_RCVTIMEO", set_option(me.link.fd, SOL_SOCKET, SO_RCVTIMEO, none));
    }
    me.step();
    if (me.server) {
        me.show("peek", receive_by(Form::kRecv, me.link.fd, 20, MSG_PEEK));
        show_offset(me);
        for (int i = 0; i < 3; ++i)
            take(me, 20);
    } else {
        ::poll(nullptr, 0, 20); // it mostly waits by then
        must(static_cast<int>(send_to(me.link.fd, "more", 4, me.link.other)), "sendto");
    }
    me.step();
    me.still_works(me.link);
}

// Those between which one went by the kernel keep their places.
SCENARIO(peek_offset_of_both_ways)
{
    for (const int offset : {0, 7, 12, 23, 31, 100}) {
        if (!me.server) {
            must(static_cast<int>(send_to(me.link.fd, "0123456789", 10, me.link.other)), "sendto");
            send_by_kernel(me.link, "by the kernel");
            must(static_cast<int>(send_to(me.link.fd, "abcdefghij", 10, me.link.other)), "sendto");
        }
        me.step();
        if (me.server) {
            set_offset(me, offset);
            for (int i = 0; i < 5; ++i)
                peek(me, 6);
            take(me, 20);
            peek(me, 4);
            peek(me, 20);
            for (int i = 0; i < 3; ++i)
                take(me, 20);
            set_offset(me, -1);
        }
        me.step();
    }
    me.still_works(me.link);
}

// Both sides draw the same numbers: what is sent, and what is asked of it. Where some of it goes by the kernel, in
// between, no more comes: it might overtake what is behind that (doc/datagrams.md); and none of that is empty (how far
// it reaches has to be found out by peeks).
SCENARIO(peek_offset_at_random)
{
    constexpr int kRounds = 10, kCalls = 25;
    std::minstd_rand random(20261123);
    const auto below = [&random](unsigned end) { return static_cast<unsigned>(random() >> 8) % end; };
    const auto send_some = [&](bool by_kernel) {
        me.step();
        for (unsigned left = below(4); left != 0; --left) {
            const std::string text = pattern_text(below(4) == 0 && !by_kernel ? 0 : 1 + below(15));
            if (me.server)
                continue;
            if (by_kernel)
                send_by_kernel(me.link, text.c_str());
            else
                must(static_cast<int>(send_to(me.link.fd, text.data(), text.size(), me.link.other)), "sendto");
        }
        me.step();
    };
    for (int round = 0; round < kRounds; ++round) {
        const bool mixed = round % 2 != 0;
        me.link = me.open("C", "S");
        for (const bool by_kernel : {false, mixed, false})
            send_some(by_kernel);
        for (int call = 0; call < kCalls; ++call) {
            const unsigned what = call == 0 ? 9 : below(10);
            const unsigned room = 1 + below(18);
            const int flags = below(4) == 0 ? MSG_TRUNC : 0;
            if (what == 8 && !mixed)
                send_some(false);
            else if (me.server && what >= 8)
                set_offset(me, static_cast<int>(room * (room % 3)));
            else if (me.server && what >= 6)
                take(me, room, flags);
            else if (me.server)
                peek(me, room, flags);
        }
        if (me.server)
            me.say("left: %u", me.drain(me.link.fd));
        me.step();
        ::close(me.link.fd);
    }
}

// The place is the socket's, whichever process moves it.
SCENARIO(peek_offset_of_a_child)
{
    me.deliver(me.link, {"0123456789", "abcdefghij"});
    if (me.server) {
        const pid_t child = must(::fork(), "fork");
        if (child == 0) {
            set_offset(me, 4);
            peek(me, 4);
            ::_exit(0);
        }
        int status = -1;
        must(::waitpid(child, &status, 0), "waitpid");
        me.say("child: status %d", status);
        for (int i = 0; i < 3; ++i)
            peek(me, 20);
        take(me, 20);
        take(me, 20);
    }
    me.step();
    me.still_works(me.link);
}
