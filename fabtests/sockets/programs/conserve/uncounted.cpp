// SPDX-License-Identifier: BSD-2-Clause
// Calls that move bytes of a stream, each in front of so many round trips that the connection is accelerated: if one
// isn't counted, it hangs there, or its bytes come in another order.
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fabtests/sockets/programs/conserve/conserve.hpp"

namespace conserve {

using fabtest::die;
using fabtest::must;
using fabtest::Peer;

namespace {

constexpr std::size_t kMany = 16384;
constexpr char kGreeting[] = "hello678";
constexpr std::size_t kGreetingLen = 8;

char g_bytes[65536];

void expect(ssize_t n, std::size_t len, const char *call)
{
    if (n < 0)
        die("%s: %s", call, strerrorname_np(errno));
    if (static_cast<std::size_t>(n) != len)
        die("%s moved %zd bytes of %zu", call, n, len);
}

void send_call(const std::string &call, int fd)
{
    iovec part{g_bytes, kMany / 2};
    mmsghdr messages[2] = {};
    for (mmsghdr &message : messages) {
        message.msg_hdr.msg_iov = &part;
        message.msg_hdr.msg_iovlen = 1;
    }
    if (call == "mmsg") {
        expect(::sendmmsg(fd, messages, 2, 0), 2, "sendmmsg");
    } else if (call == "zerocopy") {
        const int on = 1;
        must(::setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on), "SO_ZEROCOPY");
        expect(::send(fd, g_bytes, kMany, MSG_ZEROCOPY), kMany, "send(MSG_ZEROCOPY)");
    } else if (call == "sendfile") {
        const int file = must(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "open");
        expect(::sendfile(fd, file, nullptr, kMany), kMany, "sendfile");
        ::close(file);
    } else if (call == "splice") {
        int ends[2];
        must(::pipe2(ends, O_CLOEXEC), "pipe2");
        expect(::write(ends[1], g_bytes, kMany), kMany, "write");
        expect(::splice(ends[0], nullptr, fd, nullptr, kMany, 0), kMany, "splice");
    } else if (call == "pwritev2") {
        iovec both[2] = {part, part};
        expect(::pwritev2(fd, both, 2, -1, 0), kMany, "pwritev2");
    } else if (call == "dprintf") {
        expect(::dprintf(fd, "%0*d", static_cast<int>(kMany), 5), kMany, "dprintf");
    } else if (call == "stdio") {
        std::FILE *const file = ::fdopen(must(::dup(fd), "dup"), "w");
        expect(static_cast<ssize_t>(std::fwrite(g_bytes, 1, kMany, file)), kMany, "fwrite");
        std::fclose(file);
    } else {
        expect(::send(fd, g_bytes, kMany, 0), kMany, "send");
    }
}

void receive_truncated(int fd, char *place)
{
    for (std::size_t done = 0; done < kMany;) {
        const ssize_t n = ::recv(fd, place, kMany - done, MSG_TRUNC);
        if (n <= 0)
            die("recv(MSG_TRUNC): %zd %s", n, strerrorname_np(errno));
        done += static_cast<std::size_t>(n);
    }
}

void receive_mapped(int fd)
{
    for (std::size_t done = 0; done < kMany;) {
        tcp_zerocopy_receive order{};
        order.copybuf_address = reinterpret_cast<std::uint64_t>(g_bytes);
        order.copybuf_len = static_cast<std::int32_t>(kMany - done);
        socklen_t len = sizeof order;
        must(::getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &order, &len), "TCP_ZEROCOPY_RECEIVE");
        done += order.length + static_cast<std::size_t>(std::max(order.copybuf_len, 0));
        if (order.recv_skip_hint == 0 || order.length > 0 || order.copybuf_len > 0)
            continue;
        const ssize_t n = ::recv(fd, g_bytes, std::min<std::size_t>(order.recv_skip_hint, kMany - done), 0);
        if (n <= 0)
            die("recv: %zd %s", n, strerrorname_np(errno));
        done += static_cast<std::size_t>(n);
    }
}

void receive_call(const std::string &call, int fd)
{
    iovec part{g_bytes, kMany / 2};
    mmsghdr messages[2] = {};
    for (mmsghdr &message : messages) {
        message.msg_hdr.msg_iov = &part;
        message.msg_hdr.msg_iovlen = 1;
    }
    if (call == "mmsg") {
        expect(::recvmmsg(fd, messages, 2, MSG_WAITALL, nullptr), 2, "recvmmsg");
    } else if (call == "trunc" || call == "truncnull") {
        receive_truncated(fd, call == "trunc" ? g_bytes : nullptr);
    } else if (call == "zcrecv") {
        receive_mapped(fd);
    } else if (call == "peekall") {
        expect(::recv(fd, g_bytes, kMany, MSG_PEEK | MSG_WAITALL), kMany, "recv(MSG_PEEK | MSG_WAITALL)");
        expect(::recv(fd, g_bytes, kMany, MSG_WAITALL), kMany, "recv");
    } else {
        expect(::recv(fd, g_bytes, kMany, MSG_WAITALL), kMany, "recv");
    }
}

// The first bytes go with the SYN, or as if.
int connect_fast(const Peer &me, const std::string &call)
{
    const int fd = must(::socket(AF_INET, SOCK_STREAM, 0), "socket");
    socklen_t len = 0;
    const sockaddr_storage to = me.address(&len);
    const auto *const address = reinterpret_cast<const sockaddr *>(&to);
    if (call == "tfoconnect") {
        const int on = 1;
        must(::setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on), "TCP_FASTOPEN_CONNECT");
        must(::connect(fd, address, len), "connect");
        expect(::send(fd, kGreeting, kGreetingLen, 0), kGreetingLen, "send");
    } else if (call == "tfo") {
        expect(::sendto(fd, kGreeting, kGreetingLen, MSG_FASTOPEN, address, len), kGreetingLen, "sendto(MSG_FASTOPEN)");
    } else {
        char greeting[kGreetingLen];
        std::memcpy(greeting, kGreeting, sizeof greeting);
        iovec part{greeting, sizeof greeting};
        mmsghdr one{};
        one.msg_hdr.msg_name = const_cast<sockaddr_storage *>(&to);
        one.msg_hdr.msg_namelen = len;
        one.msg_hdr.msg_iov = &part;
        one.msg_hdr.msg_iovlen = 1;
        if (call == "tfomsg")
            expect(::sendmsg(fd, &one.msg_hdr, MSG_FASTOPEN), kGreetingLen, "sendmsg(MSG_FASTOPEN)");
        else
            expect(::sendmmsg(fd, &one, 1, MSG_FASTOPEN), 1, "sendmmsg(MSG_FASTOPEN)");
    }
    return fd;
}

int open_fast(Peer &me, const std::string &call)
{
    const int queue = 5;
    if (me.server)
        must(::setsockopt(me.listener, IPPROTO_TCP, TCP_FASTOPEN, &queue, sizeof queue), "TCP_FASTOPEN");
    me.step();
    if (!me.server)
        return connect_fast(me, call);
    const int fd = me.connect_plain();
    char greeting[kGreetingLen];
    fabtest::receive_all(fd, greeting, sizeof greeting);
    if (std::memcmp(greeting, kGreeting, sizeof greeting) != 0)
        die("\"%.8s\" came in place of the greeting", greeting);
    return fd;
}

} // namespace

int uncounted(Peer &me, char **argv)
{
    constexpr int kBefore = 5, kAfter = 300; // round trips
    const std::string call = argv[0];
    const bool fast = call.rfind("tfo", 0) == 0;
    me.open_listener();
    const int fd = fast ? open_fast(me, call) : me.connect_plain();
    if (!fast)
        talk(me, fd, kBefore);
    if (!fast && me.server)
        receive_call(call, fd);
    else if (!fast)
        send_call(call, fd);
    if (call == "zcrecv") // it takes all that is there or nothing, where nothing is mapped
        me.step();
    talk(me, fd, kAfter);
    me.step();
    return 0;
}

} // namespace conserve
