// SPDX-License-Identifier: BSD-2-Clause
// SO_MAX_PACING_RATE: what its forms say, and that a connection at a rate carries the same bytes. How fast is
// test_pacing.py's.
#include <sys/wait.h>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

void show_rate(const Side &me, int fd)
{
    for (const socklen_t size : {8u, 4u, 3u, 1u}) {
        unsigned long long value = 0;
        socklen_t len = size;
        const int result = ::getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &value, &len);
        me.say("%u bytes: %d, %llu in %u", size, result, value, len);
    }
}

void set_rate(const Side &me, int fd, const char *what, unsigned long long value, socklen_t len)
{
    me.show(what, ::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &value, len));
    show_rate(me, fd);
}

} // namespace

SCENARIO(pacing_rate_forms)
{
    show_rate(me, me.fd);
    set_rate(me, me.fd, "4 bytes", 3'000'000'000, 4);
    set_rate(me, me.fd, "8 bytes", 1'000'000'000'000, 8);
    set_rate(me, me.fd, "8 bytes of many", 2'000'000'000'000, 5);
    set_rate(me, me.fd, "short", 1, 3);
    set_rate(me, me.fd, "nothing", 1, 0);
    set_rate(me, me.fd, "4 bytes of ones", ~0ull, 4);
    set_rate(me, me.fd, "8 bytes of ones", ~0ull, 8);
    set_rate(me, me.fd, "4000000000", 4'000'000'000, 8);
    set_rate(me, me.fd, "0", 0, 8);
    me.show("nowhere", ::setsockopt(me.fd, SOL_SOCKET, SO_MAX_PACING_RATE, nullptr, 8));
    socklen_t len = 8;
    me.show("get nowhere", ::getsockopt(me.fd, SOL_SOCKET, SO_MAX_PACING_RATE, nullptr, &len));
    me.show("get without a length", ::getsockopt(me.fd, SOL_SOCKET, SO_MAX_PACING_RATE, &len, nullptr));
    const int copy = ::dup(me.fd);
    set_rate(me, copy, "of a copy", 5'000'000'000, 8);
    ::close(copy);
    show_rate(me, me.fd);
    me.step();
    me.show("send", ::send(me.fd, "x", 1, 0));
    char byte;
    me.show("recv", ::recv(me.fd, &byte, 1, 0));
    me.step();
}

// The rate changes on the way, and the connection goes back to the kernel in the middle, for a child that has the same
// rate.
SCENARIO(paced_bytes)
{
    constexpr std::uint64_t kHalf = 600'000;
    const Pattern pattern(31);
    if (me.server) {
        read_pattern(me.fd, pattern, 0, 3 * kHalf);
        me.say("all came");
        me.step();
        return;
    }
    set_rate(me, me.fd, "8 MB a second", 8'000'000, 8);
    write_pattern(me.fd, pattern, 0, kHalf);
    set_rate(me, me.fd, "20 MB a second", 20'000'000, 4);
    write_pattern(me.fd, pattern, kHalf, 2 * kHalf);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        show_rate(me, me.fd);
        ::_exit(0);
    }
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    me.say("child: %d", status);
    write_pattern(me.fd, pattern, 2 * kHalf, 3 * kHalf);
    show_rate(me, me.fd);
    me.step();
}

// Under a rate that lets nothing go for long, a socket is closed at once, and what was taken arrives.
SCENARIO(closed_while_paced)
{
    if (me.server) {
        me.say("came: %zu", drain(me.fd));
        me.step();
        return;
    }
    send_text(me.fd, "0123456789");
    set_rate(me, me.fd, "100 kB a second", 100'000, 8);
    send_text(me.fd, "abcdefghij");
    must(::shutdown(me.fd, SHUT_WR), "shutdown");
    me.step();
}
