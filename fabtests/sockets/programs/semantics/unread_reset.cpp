// SPDX-License-Identifier: BSD-2-Clause
// A reset behind bytes that are unread when a second process gets the socket: it is heard of once, by whoever has read
// them all.
#include "fabtests/sockets/programs/semantics/unread.hpp"

namespace {

using namespace fabtest;

enum class First { kRead, kPeeked, kReadByChild };

// The server closes with something unread, perhaps after more bytes by the kernel: whoever has got all that is there
// hears of the reset once, and then of the end.
void reset_behind_unread(Side &me, bool more, First first)
{
    if (me.server) {
        send_and_fork(me, me.fd, false);
        me.step();
        await_readable(me.fd, 1);
        if (more)
            send_text(me.fd, ", by the kernel");
        ::close(me.fd);
        me.step();
        return;
    }
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), "socketpair");
    await_text(me, me.fd);
    give_descriptor(ends[0], me.fd);
    ::close(me.fd);
    me.fd = take_descriptor(ends[1]);
    go_on(me);
    const pid_t child = first == First::kReadByChild ? must(::fork(), "fork") : -1;
    if (child == 0)
        ::_exit(receive_text(me.fd, kBytes) == kText ? 7 : 1);
    if (child > 0)
        reap(me, child);
    send_text(me.fd, "x");
    me.step();
    me.step();
    for (int i = 0; i < 4; ++i) {
        char bytes[64] = {};
        const ssize_t n = ::recv(me.fd, bytes, sizeof bytes - 1, first == First::kPeeked && i == 0 ? MSG_PEEK : 0);
        me.show("recv", n);
        me.say("\"%s\"", bytes);
    }
}

} // namespace

SCENARIO(a_reset_behind_unread_bytes)
{
    reset_behind_unread(me, true, First::kRead);
}

SCENARIO(a_reset_behind_peeked_bytes)
{
    reset_behind_unread(me, true, First::kPeeked);
}

SCENARIO(a_reset_right_behind_unread_bytes)
{
    reset_behind_unread(me, false, First::kRead);
}

SCENARIO(a_reset_right_behind_peeked_bytes)
{
    reset_behind_unread(me, false, First::kPeeked);
}

SCENARIO(a_reset_behind_bytes_that_a_child_has_read)
{
    reset_behind_unread(me, true, First::kReadByChild);
}

// Who closes last, and leaves something unread, resets the connection.
SCENARIO(unread_bytes_stay_unread)
{
    if (me.server) {
        send_and_fork(me, me.fd, false);
        char byte;
        me.show("recv", ::recv(me.fd, &byte, 1, 0));
        return;
    }
    await_text(me, me.fd);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        show_half(me, "child", me.fd);
        ::close(me.fd);
        ::_exit(0);
    }
    reap(me, child);
    me.step();
    ::close(me.fd);
    me.step();
}

// The first to close it has left something; the other one reads it all.
SCENARIO(unread_bytes_of_the_first_to_close)
{
    if (me.server) {
        send_and_fork(me, me.fd, false);
        char byte;
        me.show("recv", ::recv(me.fd, &byte, 1, 0));
        return;
    }
    await_text(me, me.fd);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        ::close(me.fd);
        ::_exit(0);
    }
    reap(me, child);
    show_half(me, "parent", me.fd);
    show_half(me, "parent", me.fd);
    me.step();
    ::close(me.fd);
    me.step();
}
