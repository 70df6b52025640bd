// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/rendezvous/broker.hpp"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "compat/src/base/clock.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/state.hpp"
#include "vma/passed.hpp"

namespace vma::sock {

namespace {

using broker::Kind;

constexpr std::int64_t kLookEveryNs = 1'000'000'000;

void hang_up()
{
    libc::close_private(broker_fd());
    g_rendezvous.broker.reset();
}

int connect_to(const char *path)
{
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    if (path[0] == '\0' || strlen(path) >= sizeof name.sun_path)
        return -1;
    strcpy(name.sun_path, path); // fits
    const int fd = libc::make_private(libc::real.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -1;
    if (libc::real.connect(fd, reinterpret_cast<const sockaddr *>(&name), sizeof name) == 0)
        return fd;
    libc::close_private(fd);
    return -1;
}

bool say(Kind kind, std::uint32_t id, int passed)
{
    const broker::Request request = {broker::kMagic, broker::kVersion, sizeof request, kind, id};
    iovec part = {const_cast<broker::Request *>(&request), sizeof request};
    PassedRoom<1> room;
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    pass(message, room, {&passed, passed >= 0 ? std::size_t{1} : 0});
    const ssize_t sent = libc::real.sendmsg(broker_fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent == static_cast<ssize_t>(sizeof request);
}

// One at the most is asked for; -1: none came.
int taken_descriptor(const msghdr &message)
{
    int fd = -1;
    each_passed(message, [&fd](int passed) {
        if (fd < 0)
            fd = passed;
        else
            libc::real.close(passed);
    });
    return libc::make_private(fd);
}

bool is_answer(const broker::Answer &a, ssize_t length)
{
    return length >= static_cast<ssize_t>(broker::kAnswerBase) && a.header.magic == broker::kMagic &&
           a.header.version == broker::kVersion && a.header.length == length && a.header.kind == Kind::kAnswer &&
           a.cgroup_length <= broker::kMostCgroup && a.cgroup_length + broker::kAnswerBase == a.header.length;
}

} // namespace

bool broker_is_there()
{
    if (g_rendezvous.broker.has_value())
        return true;
    const std::int64_t now = mux::now_ns();
    if (now < g_rendezvous.look_for_broker_ns)
        return false;
    g_rendezvous.look_for_broker_ns = now + kLookEveryNs;
    const int fd = connect_to(config::params().broker);
    if (fd < 0)
        return false;
    g_rendezvous.broker = fd;
    VMA_LOG(kDebug, "vmad's broker is at %s", config::params().broker);
    return true;
}

int broker_fd()
{
    return g_rendezvous.broker.value_or(-1);
}

// An acceptor that had data with the SYN is there before its connector, which knows of the connection by the answer. A
// connector's own SYN is among the acknowledged bytes; if data in it is too, the acceptor was there at once.
bool has_other_end(int tcp_socket)
{
    constexpr std::uint8_t kSynReceived = 3;
    tcp_info info = {};
    socklen_t size = sizeof info;
    return libc::real.getsockopt(tcp_socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           info.tcpi_state != kSynReceived && (info.tcpi_bytes_received != 0 || info.tcpi_bytes_acked > 1);
}

bool ask_broker(std::uint32_t id, int tcp_socket)
{
    if (broker_fd() < 0)
        return false;
    if (say(Kind::kAsk, id, tcp_socket))
        return true;
    if (errno != EAGAIN && errno != ETOOMANYREFS)
        hang_up();
    return false;
}

void cancel_question(std::uint32_t id)
{
    if (broker_fd() >= 0)
        say(Kind::kCancel, id, -1);
}

bool read_broker(BrokerAnswer &out)
{
    if (broker_fd() < 0)
        return false;
    out = {};
    iovec part = {&out.what, sizeof out.what};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = libc::real.recvmsg(broker_fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0)
        out.socket = taken_descriptor(message);
    if (is_answer(out.what, n))
        return true;
    libc::close_private(out.socket); // vmad has ended, or is none
    hang_up();
    return false;
}

void broker_after_fork_in_child()
{
    hang_up(); // vmad knows the parent by it
}

} // namespace vma::sock
