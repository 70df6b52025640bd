// SPDX-License-Identifier: BSD-2-Clause
// The simulated kernel: one connection, two pipes of bytes with small buffers, as far as the library's code asks.
#include <errno.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <algorithm>

#include "compat/src/libc/real.hpp"
#include "compat/test/tcp/stream_sim.hpp"

namespace vma::test::sim {

namespace {

enum TcpState : std::uint8_t { kEstablished = 1, kFinWait2 = 5, kClosed = 7, kCloseWait = 8, kClosing = 11 };

unsigned side_of(int fd)
{
    return static_cast<unsigned>(fd - fd_of(0));
}

int refuse(int error)
{
    errno = error;
    return -1;
}

std::uint32_t queued(unsigned p)
{
    const Pipe &in = g_world.pipes[peer_of(p)];
    return in.arrived - in.read;
}

std::uint32_t room_to_send(unsigned p)
{
    const Pipe &out = g_world.pipes[p];
    const std::uint32_t used = out.sent - out.arrived;
    return out.send_room > used ? out.send_room - used : 0;
}

int take_error(KernelSocket &k)
{
    const int error = k.error;
    k.error = 0;
    return error;
}

void reset(unsigned p, int error)
{
    KernelSocket &k = g_world.kernel[p];
    if (k.reset)
        return;
    k.reset = true;
    k.error = error;
    Pipe &out = g_world.pipes[p];
    out.sent = out.arrived; // what was on its way is gone, both ways
    Pipe &in = g_world.pipes[peer_of(p)];
    in.sent = in.arrived;
}

bool sees_fin(unsigned p)
{
    const Pipe &in = g_world.pipes[peer_of(p)];
    return in.fin_arrived || (g_world.fault == Fault::kEarlyFin && in.fin_sent);
}

// ---- bytes

ssize_t put(int fd, const msghdr &message)
{
    const unsigned p = side_of(fd);
    KernelSocket &k = g_world.kernel[p];
    Pipe &out = g_world.pipes[p];
    if (const int error = take_error(k))
        return refuse(error);
    if (k.reset || out.fin_sent)
        return refuse(EPIPE);
    std::uint32_t room = room_to_send(p);
    ssize_t done = 0;
    for (std::size_t i = 0; i < message.msg_iovlen && room != 0; ++i) {
        const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(message.msg_iov[i].iov_len, room));
        for (std::uint32_t at = 0; at < n; ++at)
            out.bytes[out.sent++ % kMostInPipe] = static_cast<const std::uint8_t *>(message.msg_iov[i].iov_base)[at];
        room -= n;
        done += n;
    }
    const auto wanted = static_cast<ssize_t>(sock::total_length(message));
    if (g_world.fault == Fault::kKernelDrops && done != 0)
        return wanted;
    return done != 0 || wanted == 0 ? done : refuse(EAGAIN);
}

ssize_t take(int fd, msghdr &message, int flags)
{
    const unsigned p = side_of(fd);
    KernelSocket &k = g_world.kernel[p];
    Pipe &in = g_world.pipes[peer_of(p)];
    message.msg_flags = 0;
    std::uint32_t left = queued(p);
    if (left == 0) {
        if (const int error = take_error(k))
            return refuse(error);
        return k.disconnected ? refuse(ENOTCONN) : k.reset || sees_fin(p) ? 0 : refuse(EAGAIN);
    }
    std::uint32_t from = in.read;
    for (std::size_t i = 0; i < message.msg_iovlen && left != 0; ++i) {
        const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(message.msg_iov[i].iov_len, left));
        for (std::uint32_t at = 0; at < n; ++at)
            static_cast<std::uint8_t *>(message.msg_iov[i].iov_base)[at] = in.bytes[from++ % kMostInPipe];
        left -= n;
    }
    const auto done = static_cast<ssize_t>(from - in.read);
    if ((flags & MSG_PEEK) == 0)
        in.read = from;
    return done;
}

ssize_t put_bytes(int fd, const void *bytes, std::size_t length)
{
    iovec part = {const_cast<void *>(bytes), length};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    return put(fd, message);
}

// ---- the table's entries

ssize_t real_send(int fd, const void *bytes, std::size_t length, int)
{
    return put_bytes(fd, bytes, length);
}

ssize_t real_sendmsg(int fd, const msghdr *message, int)
{
    return put(fd, *message);
}

ssize_t real_recv(int fd, void *bytes, std::size_t length, int flags)
{
    iovec part = {bytes, length};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    return take(fd, message, flags);
}

ssize_t real_recvmsg(int fd, msghdr *message, int flags)
{
    return take(fd, *message, flags);
}

int poll_one(pollfd &p)
{
    p.revents = kernel_poll(side_of(p.fd), p.events);
    return p.revents != 0 ? 1 : 0;
}

long real_syscall(long number, ...) noexcept
{
    va_list list;
    va_start(list, number);
    const auto next = [&list] { return va_arg(list, long); };
    const long first = next();
    const long second = next();
    const long third = next();
    va_end(list);
    const int fd = static_cast<int>(first);
    switch (number) {
    case SYS_recvmsg:
        return take(fd, *reinterpret_cast<msghdr *>(second), static_cast<int>(third));
    case SYS_sendmsg:
        return put(fd, *reinterpret_cast<const msghdr *>(second));
    case SYS_sendto:
        return put_bytes(fd, reinterpret_cast<const void *>(second), static_cast<std::size_t>(third));
    case SYS_ppoll:
        return first != 0 ? poll_one(*reinterpret_cast<pollfd *>(first)) : pass_time();
    default:
        report("a system call that the simulation does not know");
        return refuse(ENOSYS);
    }
}

int real_poll(pollfd *fds, nfds_t, int)
{
    return fds == nullptr ? 0 : poll_one(*fds);
}

void read_info(unsigned p, tcp_info &info)
{
    const Pipe &out = g_world.pipes[p];
    const Pipe &in = g_world.pipes[peer_of(p)];
    info = {};
    info.tcpi_state = g_world.kernel[p].reset ? kClosed
                      : sees_fin(p)           ? (out.fin_sent ? kClosing : kCloseWait)
                                              : (out.fin_sent ? kFinWait2 : kEstablished);
    const std::uint32_t off = g_world.fault == Fault::kCountOff && out.arrived > 2 ? 1 : 0;
    info.tcpi_bytes_acked = out.arrived + off + (socket_of(p).role == sock::Role::kConnector ? 1 : 0);
    info.tcpi_bytes_received = in.arrived + (sees_fin(p) ? 1 : 0);
}

template <typename Value> int give(void *to, socklen_t *size, const Value &value)
{
    *size = std::min<socklen_t>(*size, sizeof value);
    memcpy(to, &value, *size);
    return 0;
}

int real_getsockopt(int fd, int level, int name, void *value, socklen_t *size) noexcept
{
    const unsigned p = side_of(fd);
    if (level == IPPROTO_TCP && name == TCP_INFO) {
        tcp_info info;
        read_info(p, info);
        return give(value, size, info);
    }
    if (level == SOL_SOCKET && name == SO_LINGER)
        return give(value, size, g_world.kernel[p].at_close);
    if (level == SOL_SOCKET && name == SO_SNDBUF)
        return give(value, size, static_cast<int>(g_world.pipes[p].send_room));
    if (level == SOL_SOCKET && name == SO_MEMINFO) {
        std::uint32_t info[SK_MEMINFO_VARS] = {};
        info[SK_MEMINFO_WMEM_QUEUED] = g_world.pipes[p].sent - g_world.pipes[p].arrived;
        return give(value, size, info);
    }
    return refuse(ENOPROTOOPT);
}

int real_setsockopt(int fd, int level, int name, const void *value, socklen_t) noexcept
{
    const unsigned p = side_of(fd);
    if (level == SOL_SOCKET && name == SO_LINGER) {
        memcpy(&g_world.kernel[p].at_close, value, sizeof(linger));
    } else if (level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_SNDBUFFORCE)) {
        int half = 0;
        memcpy(&half, value, sizeof half);
        if (name == SO_SNDBUFFORCE)
            return refuse(EPERM);
        if (!g_world.room_refused)
            g_world.pipes[p].send_room = std::clamp(static_cast<std::uint32_t>(half) * 2, 2U, kMostInPipe / 2);
    }
    return 0;
}

int real_ioctl(int fd, unsigned long request, ...) noexcept
{
    va_list list;
    va_start(list, request);
    int &value = *va_arg(list, int *);
    va_end(list);
    const unsigned p = side_of(fd);
    const Pipe &out = g_world.pipes[p];
    value = 0;
    if (request == SIOCINQ)
        value = g_world.fault == Fault::kNoQueued ? 0 : static_cast<int>(queued(p));
    else if (request == SIOCOUTQ)
        value = static_cast<int>(out.sent - out.arrived);
    return 0;
}

int real_fcntl(int, int, ...)
{
    return O_NONBLOCK;
}

// connect(AF_UNSPEC): the connection is reset, and the library has given up on it.
int real_connect(int fd, const sockaddr *, socklen_t)
{
    const unsigned p = side_of(fd);
    ++g_world.resets;
    if (!g_world.may_reset && !g_world.room_refused && !g_world.given_up)
        report("the library resets the connection");
    g_world.may_reset = true;
    Pipe &in = g_world.pipes[peer_of(p)];
    reset(p, 0);
    in.read = in.sent = in.arrived; // what it has not read is gone, too
    g_world.kernel[p].disconnected = true;
    reset(peer_of(p), ECONNRESET);
    return 0;
}

int real_shutdown(int fd, int how) noexcept
{
    const unsigned p = side_of(fd);
    if (g_world.kernel[p].reset)
        return refuse(ENOTCONN);
    if (how == SHUT_WR || how == SHUT_RDWR)
        g_world.pipes[p].fin_sent = true;
    return 0;
}

} // namespace

short kernel_poll(unsigned p, short events)
{
    const KernelSocket &k = g_world.kernel[p];
    const Pipe &out = g_world.pipes[p];
    int now = 0;
    if (queued(p) != 0 || sees_fin(p) || k.reset)
        now |= POLLIN | POLLRDNORM;
    if (sees_fin(p) || k.reset)
        now |= POLLRDHUP;
    if (k.reset || (sees_fin(p) && out.fin_sent))
        now |= POLLHUP;
    if (k.error != 0)
        now |= POLLERR;
    if (room_to_send(p) != 0 || out.fin_sent || k.reset)
        now |= POLLOUT | POLLWRNORM;
    if (g_world.fault == Fault::kPollLies)
        now &= ~(POLLRDHUP | POLLHUP);
    return static_cast<short>(now & (events | POLLHUP | POLLERR));
}

Edge kernel_edge(unsigned p)
{
    const KernelSocket &k = g_world.kernel[p];
    const Pipe &in = g_world.pipes[peer_of(p)];
    return Edge{in.arrived} << 3 | Edge{in.fin_arrived} << 2 | Edge{k.reset} << 1 | Edge{k.error != 0};
}

bool can_move(unsigned from)
{
    const Pipe &pipe = g_world.pipes[from];
    if (pipe.arrived != pipe.sent)
        return g_world.kernel[peer_of(from)].gone || pipe.arrived - pipe.read < pipe.receive_room;
    return pipe.fin_sent && !pipe.fin_arrived && !g_world.kernel[peer_of(from)].reset;
}

void move(unsigned from)
{
    Pipe &pipe = g_world.pipes[from];
    const unsigned to = peer_of(from);
    if (g_world.kernel[to].gone) { // nobody is there: what comes is answered by a reset
        if (pipe.arrived != pipe.sent) {
            pipe.read = pipe.arrived = pipe.sent;
            g_world.may_reset = true;
            reset(from, ECONNRESET);
        } else {
            pipe.fin_arrived = true;
        }
        return;
    }
    const std::uint32_t used = pipe.arrived - pipe.read;
    const std::uint32_t room = pipe.receive_room > used ? pipe.receive_room - used : 0;
    pipe.arrived += std::min(room, pipe.sent - pipe.arrived);
    if (pipe.arrived == pipe.sent && !g_world.kernel[to].reset)
        pipe.fin_arrived = pipe.fin_sent;
}

void end_process(unsigned p)
{
    KernelSocket &k = g_world.kernel[p];
    const bool unread = queued(p) != 0;
    const bool aborts = k.at_close.l_onoff != 0 && k.at_close.l_linger == 0;
    k.gone = true;
    if (unread || aborts) {
        g_world.may_reset = true;
        reset(peer_of(p), ECONNRESET);
        reset(p, 0);
    } else if (!k.reset) {
        g_world.pipes[p].fin_sent = true;
    }
}

void install_kernel()
{
    libc::real.send = real_send;
    libc::real.sendmsg = real_sendmsg;
    libc::real.recv = real_recv;
    libc::real.recvmsg = real_recvmsg;
    libc::real.syscall = real_syscall;
    libc::real.poll = real_poll;
    libc::real.getsockopt = real_getsockopt;
    libc::real.setsockopt = real_setsockopt;
    libc::real.ioctl = real_ioctl;
    libc::real.fcntl = real_fcntl;
    libc::real.connect = real_connect;
    libc::real.shutdown = real_shutdown;
}

} // namespace vma::test::sim
