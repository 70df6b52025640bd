// SPDX-License-Identifier: BSD-2-Clause
// What single calls on a connection return: flags, short and empty buffers, time-outs, counters, options.
#include <netinet/tcp.h>
#include <sys/time.h>

#include <climits>
#include <linux/sockios.h>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

std::string shown(const char *buf, ssize_t n)
{
    return n > 0 ? std::string(buf, static_cast<std::size_t>(n)) : "";
}

} // namespace

// A peek for all of it waits for all of it, and tells each byte once.
SCENARIO(peek_waitall)
{
    if (me.server) {
        send_text(me.fd, "first half, ");
        me.step();
        ::poll(nullptr, 0, 20); // the other side mostly waits by then
        send_text(me.fd, "second half");
        me.step();
        return;
    }
    await_readable(me.fd, 12);
    me.step();
    char buf[64];
    for (const int flags : {int{MSG_WAITALL} | int{MSG_PEEK}, int{MSG_WAITALL}}) {
        const ssize_t n = ::recv(me.fd, buf, 23, flags);
        me.say("%s: %s", flags == MSG_WAITALL ? "recv" : "peek", shown(buf, n).c_str());
    }
    me.step();
}

SCENARIO(peek_trunc_dontwait)
{
    if (me.server) {
        send_text(me.fd, "hello, world");
        me.step();
        me.step();
        return;
    }
    me.step();
    await_readable(me.fd, 12);
    char buf[64];
    ssize_t n = ::recv(me.fd, buf, 5, MSG_PEEK);
    me.say("peek 5: %s", shown(buf, n).c_str());
    n = ::recv(me.fd, buf, sizeof buf, MSG_PEEK);
    me.say("peek all: %s", shown(buf, n).c_str());
    iovec parts[2] = {{buf, 3}, {buf + 10, 4}};
    msghdr msg{};
    msg.msg_iov = parts;
    msg.msg_iovlen = 2;
    me.show("recvmsg PEEK in two parts", ::recvmsg(me.fd, &msg, MSG_PEEK));
    me.say("%.3s %.4s", buf, buf + 10);
    me.show("recv of nothing", ::recv(me.fd, buf, 0, 0));
    me.show("read of nothing", ::read(me.fd, buf, 0));
    me.show("recv TRUNC of 3 into nowhere", ::recv(me.fd, nullptr, 3, MSG_TRUNC));
    n = ::recv(me.fd, buf, 4, 0);
    me.say("recv 4: %s", shown(buf, n).c_str());
    n = ::recv(me.fd, buf, sizeof buf, MSG_DONTWAIT);
    me.say("rest: %s", shown(buf, n).c_str());
    me.show("recv DONTWAIT", ::recv(me.fd, buf, sizeof buf, MSG_DONTWAIT));
    me.show("recv DONTWAIT PEEK", ::recv(me.fd, buf, sizeof buf, MSG_DONTWAIT | MSG_PEEK));
    me.show("recv DONTWAIT WAITALL", ::recv(me.fd, buf, sizeof buf, MSG_DONTWAIT | MSG_WAITALL));
    me.show("recv DONTWAIT of nothing", ::recv(me.fd, buf, 0, MSG_DONTWAIT));
    me.show("recv OOB", ::recv(me.fd, buf, 1, MSG_OOB));
    me.show("recv ERRQUEUE", ::recv(me.fd, buf, 1, MSG_ERRQUEUE));
    me.step();
}

SCENARIO(waitall)
{
    char buf[64];
    if (me.server) {
        send_text(me.fd, "0123");
        me.step();
        ::usleep(50000);
        send_text(me.fd, "456789");
        me.step();
        send_text(me.fd, "abc");
        me.step();
        me.step();
        send_text(me.fd, "tail");
        must(::shutdown(me.fd, SHUT_WR), "shutdown");
        return;
    }
    me.step();
    ssize_t n = ::recv(me.fd, buf, 10, MSG_WAITALL);
    me.say("two arrivals: %s", shown(buf, n).c_str());
    me.step();
    me.step();
    await_readable(me.fd, 3); // or its way may take longer than the time-out
    timeval limit{0, 150000};
    must(::setsockopt(me.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), "SO_RCVTIMEO");
    n = ::recv(me.fd, buf, 10, MSG_WAITALL);
    me.say("cut by the time-out: %s", shown(buf, n).c_str());
    limit = {};
    must(::setsockopt(me.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), "SO_RCVTIMEO");
    me.step();
    iovec parts[3] = {{buf, 2}, {buf + 2, 1}, {buf + 3, 20}};
    msghdr msg{};
    msg.msg_iov = parts;
    msg.msg_iovlen = 3;
    n = ::recvmsg(me.fd, &msg, MSG_WAITALL);
    me.say("cut by the end: %s", shown(buf, n).c_str());
    me.show("at the end", ::recv(me.fd, buf, 10, MSG_WAITALL));
}

SCENARIO(message_fields)
{
    if (me.server) {
        send_text(me.fd, "abcdefgh");
        me.step();
        return;
    }
    await_readable(me.fd, 8);
    char buf[16], control[64];
    iovec part{buf, 2};
    sockaddr_storage name{};
    msghdr msg{};
    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    msg.msg_name = &name;
    msg.msg_namelen = sizeof name;
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
    msg.msg_flags = 0x55;
    me.show("recvmsg", ::recvmsg(me.fd, &msg, 0));
    me.say("namelen %u controllen %zu flags %#x", msg.msg_namelen, msg.msg_controllen,
           static_cast<unsigned>(msg.msg_flags));
    msg.msg_flags = 0;
    me.show("recvmsg CMSG_CLOEXEC", ::recvmsg(me.fd, &msg, MSG_CMSG_CLOEXEC));
    me.say("flags %#x", static_cast<unsigned>(msg.msg_flags));
    socklen_t len = sizeof name;
    me.show("recvfrom", ::recvfrom(me.fd, buf, 2, 0, reinterpret_cast<sockaddr *>(&name), &len));
    me.say("address length %u", len);
    mmsghdr two[2]{};
    iovec each[2] = {{buf, 1}, {buf + 1, 1}};
    for (int i = 0; i < 2; ++i) {
        two[i].msg_hdr.msg_iov = &each[i];
        two[i].msg_hdr.msg_iovlen = 1;
    }
    me.show("recvmmsg", ::recvmmsg(me.fd, two, 2, 0, nullptr));
    me.say("lengths %u %u", two[0].msg_len, two[1].msg_len);
    me.show("recvmmsg on empty", ::recvmmsg(me.fd, two, 2, MSG_DONTWAIT, nullptr));
    timespec limit{0, 50000000};
    me.show("recvmmsg of none", ::recvmmsg(me.fd, two, 0, 0, &limit));
    me.step();
}

SCENARIO(bad_arguments)
{
    char buf[8] = {};
    static iovec pieces[IOV_MAX + 1];
    pieces[0] = {buf, 1};
    volatile int count = -1; // the compiler would see what is wrong
    me.show("readv of -1 pieces", ::readv(me.fd, pieces, count));
    me.show("writev of -1 pieces", ::writev(me.fd, pieces, count));
    me.show("writev of too many pieces", ::writev(me.fd, pieces, IOV_MAX + 1));
    me.show("writev of no piece", ::writev(me.fd, pieces, 0));
    me.show("send of nothing", ::send(me.fd, buf, 0, 0));
    me.show("write of nothing", ::write(me.fd, buf, 0));
    me.show("pread", ::pread(me.fd, buf, 1, 0));
    me.show("pwrite", ::pwrite(me.fd, buf, 1, 0));
    me.show("lseek", ::lseek(me.fd, 0, SEEK_SET));
    me.show("accept", ::accept(me.fd, nullptr, nullptr));
    me.show("listen", ::listen(me.fd, 1));
    me.show("shutdown 7", ::shutdown(me.fd, 7));
    me.show("fsync", ::fsync(me.fd));
    msghdr msg{};
    msg.msg_iov = pieces;
    msg.msg_iovlen = IOV_MAX + 1;
    me.show("sendmsg of too many pieces", ::sendmsg(me.fd, &msg, 0));
    me.show("recvmsg of too many pieces", ::recvmsg(me.fd, &msg, 0));
    socklen_t len = sizeof buf;
    me.show("unknown option", ::getsockopt(me.fd, IPPROTO_TCP, 9999, buf, &len));
    // Nothing of all this may have reached the peer.
    me.step();
    me.show("recv", ::recv(me.fd, buf, 1, MSG_DONTWAIT));
    me.step();
}

SCENARIO(counters)
{
    if (me.server) {
        const std::string block(1000, 'x');
        send_all(me.fd, block.data(), block.size());
        await_acknowledged(me.fd);
        me.say("all 1000 acknowledged while nobody read");
        me.step();
        me.step();
        fill_until_full(me.fd);
        int left = -1;
        must(::ioctl(me.fd, SIOCOUTQ, &left), "SIOCOUTQ");
        me.say("full: %s", left > 0 ? "unsent bytes" : "no unsent bytes");
        me.step();
        must(::shutdown(me.fd, SHUT_WR), "shutdown");
        me.step();
        return;
    }
    char buf[1000];
    int count = -1;
    me.step();
    await_readable(me.fd, 1000);
    me.show("ioctl FIONREAD", ::ioctl(me.fd, FIONREAD, &count));
    me.say("%d", count);
    me.show("recv 300", ::recv(me.fd, buf, 300, 0));
    must(::ioctl(me.fd, FIONREAD, &count), "FIONREAD");
    me.say("%d", count);
    me.show("peek 300", ::recv(me.fd, buf, 300, MSG_PEEK));
    must(::ioctl(me.fd, SIOCINQ, &count), "SIOCINQ");
    me.say("%d", count);
    must(::ioctl(me.fd, SIOCATMARK, &count), "SIOCATMARK");
    me.say("at mark %d", count);
    me.show("recv 700", ::recv(me.fd, buf, 1000, 0));
    must(::ioctl(me.fd, FIONREAD, &count), "FIONREAD");
    me.say("%d", count);
    await_acknowledged(me.fd); // what was sent before
    must(::ioctl(me.fd, SIOCOUTQ, &count), "SIOCOUTQ");
    me.say("nothing sent, unsent: %d", count);
    me.step();
    me.step();
    me.say("drained: %s", drain(me.fd) > 0 ? "yes" : "no");
    must(::ioctl(me.fd, FIONREAD, &count), "FIONREAD");
    me.say("at the end: %d", count);
    me.step();
}

SCENARIO(timeouts)
{
    if (me.server) {
        me.step();
        me.step();
        return;
    }
    char buf[16];
    timeval limit{0, 120000};
    must(::setsockopt(me.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), "SO_RCVTIMEO");
    must(::setsockopt(me.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), "SO_SNDTIMEO");
    timeval back{};
    socklen_t len = sizeof back;
    me.show("getsockopt", ::getsockopt(me.fd, SOL_SOCKET, SO_RCVTIMEO, &back, &len));
    me.say("%ld.%06ld in %u bytes", back.tv_sec, back.tv_usec, len);
    std::int64_t start = now_ms();
    me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
    me.say("waited: %s", now_ms() - start >= 119 ? "long enough" : "too short");
    start = now_ms();
    me.show("read", ::read(me.fd, buf, sizeof buf));
    me.say("waited: %s", now_ms() - start >= 119 ? "long enough" : "too short");
    start = now_ms();
    me.show("recv DONTWAIT", ::recv(me.fd, buf, sizeof buf, MSG_DONTWAIT));
    fill_until_full(me.fd);
    start = now_ms();
    me.show("send on a full socket", ::send(me.fd, buf, sizeof buf, 0));
    me.say("waited: %s", now_ms() - start >= 119 ? "long enough" : "too short");
    me.step();
    me.step();
    limit = {};
    must(::setsockopt(me.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), "SO_RCVTIMEO");
    limit = {-1, 0};
    me.show("negative time-out", ::setsockopt(me.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    limit = {0, 2000000};
    me.show("two million microseconds", ::setsockopt(me.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
}

SCENARIO(partial_send_at_timeout)
{
    if (me.server) {
        me.step();
        const std::uint64_t told = me.hear();
        must(::shutdown(me.fd, SHUT_WR), "shutdown");
        me.say("arrived as told: %s", drain(me.fd) == told ? "yes" : "no");
        return;
    }
    const timeval limit{0, 100000};
    must(::setsockopt(me.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), "SO_SNDTIMEO");
    const std::string large(64 << 20, 'x');
    const ssize_t n = ::send(me.fd, large.data(), large.size(), 0);
    me.say("send of 64 MiB: %s", n > 0 && n < (64 << 20) ? "in part" : "unexpected");
    me.step();
    me.tell(static_cast<std::uint64_t>(n));
    must(::shutdown(me.fd, SHUT_WR), "shutdown");
    me.show("recv", ::recv(me.fd, const_cast<char *>(large.data()), 1, 0));
}

SCENARIO(send_flags)
{
    if (me.server) {
        me.say("corked and flushed: %s", receive_text(me.fd, 9).c_str());
        me.step();
        me.say("left corked: %s", receive_text(me.fd, 6).c_str()); // the kernel sends it after 200 ms
        me.step();
        me.say("option: %s", receive_text(me.fd, 4).c_str());
        me.step();
        me.say("sendto: %s", receive_text(me.fd, 8).c_str());
        me.step();
        me.say("others: %s", receive_text(me.fd, 8).c_str());
        return;
    }
    me.show("send MORE", ::send(me.fd, "one", 3, MSG_MORE));
    me.show("send MORE", ::send(me.fd, "two", 3, MSG_MORE));
    me.show("send", ::send(me.fd, "end", 3, 0));
    me.step();
    me.show("send MORE", ::send(me.fd, "corked", 6, MSG_MORE));
    me.step();
    int on = 1;
    me.show("cork", ::setsockopt(me.fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on));
    me.show("write", ::write(me.fd, "ab", 2));
    me.show("write", ::write(me.fd, "cd", 2));
    on = 0;
    me.show("uncork", ::setsockopt(me.fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on));
    me.step();
    socklen_t len;
    sockaddr_storage where = me.address(&len);
    me.show("sendto with an address", ::sendto(me.fd, "addr", 4, 0, reinterpret_cast<sockaddr *>(&where), len));
    iovec part{const_cast<char *>("name"), 4};
    msghdr msg{};
    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    msg.msg_name = &where;
    msg.msg_namelen = len;
    me.show("sendmsg with an address", ::sendmsg(me.fd, &msg, 0));
    me.step();
    me.show("send EOR", ::send(me.fd, "ef", 2, MSG_EOR));
    me.show("send CONFIRM", ::send(me.fd, "gh", 2, MSG_CONFIRM));
    me.show("send DONTROUTE", ::send(me.fd, "ij", 2, MSG_DONTROUTE));
    me.show("send ZEROCOPY", ::send(me.fd, "kl", 2, MSG_ZEROCOPY)); // without SO_ZEROCOPY: as without the flag
    alignas(cmsghdr) char junk[CMSG_SPACE(4)] = {};
    msg = {};
    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    msg.msg_control = junk;
    msg.msg_controllen = sizeof junk; // cmsg_len 0: not a valid header
    me.show("sendmsg with a bad control message", ::sendmsg(me.fd, &msg, 0));
}

SCENARIO(options)
{
    auto number = [&](const char *name, int level, int option) {
        int value = -1;
        socklen_t len = sizeof value;
        if (::getsockopt(me.fd, level, option, &value, &len) < 0)
            me.say("%s: %s", name, strerrorname_np(errno));
        else
            me.say("%s: %d in %u bytes", name, value, len);
    };
    number("SO_TYPE", SOL_SOCKET, SO_TYPE);
    number("SO_ERROR", SOL_SOCKET, SO_ERROR);
    number("SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN);
    number("SO_DOMAIN", SOL_SOCKET, SO_DOMAIN);
    number("SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL);
    number("SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT);
    number("TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY);
    int value = 0;
    me.show("TCP_NODELAY off", ::setsockopt(me.fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
    number("TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY);
    value = 1;
    me.show("SO_KEEPALIVE", ::setsockopt(me.fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
    number("SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE);
    value = 40000;
    me.show("SO_SNDBUF", ::setsockopt(me.fd, SOL_SOCKET, SO_SNDBUF, &value, sizeof value));
    number("SO_SNDBUF", SOL_SOCKET, SO_SNDBUF);
    me.show("short option", ::setsockopt(me.fd, SOL_SOCKET, SO_KEEPALIVE, &value, 1));
    me.show("no such level", ::setsockopt(me.fd, 4711, 1, &value, sizeof value));
    tcp_info info{};
    socklen_t len = sizeof info;
    me.show("TCP_INFO", ::getsockopt(me.fd, IPPROTO_TCP, TCP_INFO, &info, &len));
    me.say("state %d", info.tcpi_state);
    int fl = ::fcntl(me.fd, F_GETFL);
    me.say("flags: %s %s", (fl & O_ACCMODE) == O_RDWR ? "O_RDWR" : "?", fl & O_NONBLOCK ? "O_NONBLOCK" : "blocking");
    int on = 1;
    me.show("FIONBIO", ::ioctl(me.fd, FIONBIO, &on));
    me.say("%s", ::fcntl(me.fd, F_GETFL) & O_NONBLOCK ? "O_NONBLOCK" : "blocking");
    char byte;
    me.show("recv", ::recv(me.fd, &byte, 1, 0));
    on = 0;
    me.show("FIONBIO", ::ioctl(me.fd, FIONBIO, &on));
    me.show("F_SETFL", ::fcntl(me.fd, F_SETFL, O_RDWR | O_NONBLOCK));
    me.show("recv", ::recv(me.fd, &byte, 1, 0));
    set_nonblocking(me.fd, false);
    me.step();
    me.show("send", ::send(me.fd, "x", 1, 0));
    me.show("recv", ::recv(me.fd, &byte, 1, 0));
    me.step();
}

SCENARIO(low_water_mark)
{
    if (me.server) {
        me.step();
        send_text(me.fd, "12345");
        me.step();
        me.step();
        send_text(me.fd, "67890");
        me.step();
        return;
    }
    const int mark = 8;
    char buf[32];
    me.show("SO_RCVLOWAT 8", ::setsockopt(me.fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark));
    me.step();
    me.step();
    await_readable(me.fd, 5);
    pollfd p{me.fd, POLLIN, 0};
    me.show("poll with 5 bytes", ::poll(&p, 1, 100));
    me.show("recv DONTWAIT", ::recv(me.fd, buf, 32, MSG_DONTWAIT | MSG_PEEK));
    me.step();
    await_readable(me.fd, 10);
    me.show("poll with 10 bytes", ::poll(&p, 1, patience::milliseconds()));
    const ssize_t n = ::recv(me.fd, buf, 32, 0);
    me.say("recv: %s", shown(buf, n).c_str());
    me.step();
}

SCENARIO(zero_copy_send)
{
    if (me.server) {
        const Pattern pattern(9);
        read_pattern(me.fd, pattern, 0, 100000);
        me.say("arrived");
        me.step();
        return;
    }
    const int on = 1;
    me.show("SO_ZEROCOPY", ::setsockopt(me.fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on));
    static char block[100000];
    Pattern(9).fill(0, block, sizeof block);
    iovec part{block, sizeof block};
    msghdr msg{};
    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    me.show("sendmsg ZEROCOPY", ::sendmsg(me.fd, &msg, MSG_ZEROCOPY));
    await_events(me.fd, POLLERR);
    alignas(cmsghdr) char control[256];
    msg = {};
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
    me.show("recvmsg ERRQUEUE", ::recvmsg(me.fd, &msg, MSG_ERRQUEUE));
    me.say("flags %#x, %s", static_cast<unsigned>(msg.msg_flags), msg.msg_controllen > 0 ? "a notice" : "no notice");
    me.step();
}
