// SPDX-License-Identifier: BSD-2-Clause
// Urgent data: the signal, the mark, the byte beside the stream, and what a connection that has some does before and
// after.
#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

std::string shown(const char *buf, ssize_t n)
{
    return n > 0 ? std::string(buf, static_cast<std::size_t>(n)) : "";
}

} // namespace

SCENARIO(out_of_band)
{
    static volatile sig_atomic_t urgent;
    urgent = 0;
    if (me.server) {
        me.step();
        send_text(me.fd, "before");
        me.show("send OOB", ::send(me.fd, "!", 1, MSG_OOB));
        send_text(me.fd, "after");
        me.step();
        const int on = 1;
        must(::setsockopt(me.fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on), "SO_OOBINLINE");
        me.step();
        char buf[32];
        await_readable(me.fd, 3);
        ssize_t n = ::recv(me.fd, buf, sizeof buf, 0);
        n += n < 3 ? ::recv(me.fd, buf + n, sizeof buf - static_cast<std::size_t>(n), 0) : 0;
        me.say("inline: %s", shown(buf, n).c_str());
        return;
    }
    ::signal(SIGURG, [](int) { urgent = 1; });
    me.show("F_SETOWN", ::fcntl(me.fd, F_SETOWN, ::getpid()));
    me.step();
    await_events(me.fd, POLLPRI);
    me.step();
    await_readable(me.fd, 6);
    char buf[32];
    me.say("SIGURG: %s", urgent ? "yes" : "no");
    int mark = -1;
    must(::ioctl(me.fd, SIOCATMARK, &mark), "SIOCATMARK");
    me.say("at mark %d", mark);
    ssize_t n = ::recv(me.fd, buf, sizeof buf, 0);
    me.say("up to the mark: %s", shown(buf, n).c_str());
    must(::ioctl(me.fd, SIOCATMARK, &mark), "SIOCATMARK");
    me.say("at mark %d", mark);
    n = ::recv(me.fd, buf, 1, MSG_OOB);
    me.say("the urgent byte: %s", shown(buf, n).c_str());
    me.show("again", ::recv(me.fd, buf, 1, MSG_OOB));
    me.say("behind the mark: %s", receive_text(me.fd, 5).c_str());
    me.step();
    me.show("send OOB of three", ::send(me.fd, "xyz", 3, MSG_OOB));
}

// Nothing has sent the connection to the kernel before, and much follows.
SCENARIO(urgent_byte_between)
{
    for (int turn = 0; turn < 3; ++turn) {
        if (me.server) {
            send_text(me.fd, "before");
            me.show("send OOB", ::send(me.fd, "!", 1, MSG_OOB));
            send_text(me.fd, "after");
        } else {
            await_events(me.fd, POLLPRI);
            me.say("at mark %d", ::sockatmark(me.fd));
            char buf[32];
            ssize_t n = ::recv(me.fd, buf, 11, MSG_WAITALL);
            me.say("up to the mark: %s", shown(buf, n).c_str());
            int mark = -1;
            must(::ioctl(me.fd, SIOCATMARK, &mark), "SIOCATMARK");
            me.say("at mark %d", mark);
            me.say("behind the mark: %s", receive_text(me.fd, 5).c_str());
            me.say("at mark %d", ::sockatmark(me.fd));
        }
        for (int i = 0; i < 100; ++i) {
            if (me.server == (i % 2 == 0))
                send_text(me.fd, "exchange");
            else if (receive_text(me.fd, 8) != "exchange")
                me.say("wrong bytes in exchange %d", i);
        }
    }
}

// While the mark and what is behind it wait, the connection would be accelerated: nothing of it is lost.
SCENARIO(urgent_byte_ahead)
{
    constexpr int kCalls = 200;
    const int fd = me.connect_plain();
    char byte = 0;
    if (me.server) {
        send_text(fd, "before");
        me.show("send OOB", ::send(fd, "!", 1, MSG_OOB));
        send_text(fd, "after");
        for (int i = 0; i < kCalls; ++i)
            must(static_cast<int>(::recv(fd, &byte, 1, 0)), "recv");
        me.step();
    } else {
        await_events(fd, POLLPRI);
        me.say("the urgent byte: %s", ::recv(fd, &byte, 1, MSG_OOB) == 1 ? "there" : strerrorname_np(errno));
        for (int i = 0; i < kCalls; ++i)
            must(static_cast<int>(::send(fd, "x", 1, 0)), "send");
        me.step();
        me.say("at mark %d", ::sockatmark(fd));
        char buf[32];
        const ssize_t n = ::recv(fd, buf, sizeof buf, 0);
        me.say("up to the mark: %s", shown(buf, n).c_str());
        me.say("at mark %d", ::sockatmark(fd));
        me.say("behind the mark: %s", receive_text(fd, 5).c_str());
    }
    ::close(fd);
}
