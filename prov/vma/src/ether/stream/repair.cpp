// SPDX-License-Identifier: BSD-2-Clause
// System calls are made by number: the preload library's functions of those names would take the socket for one of its
// own. It takes sendto and recvfrom by number, too, but not their forms for several messages.
#include "ether/stream/repair.hpp"

#include <linux/filter.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>

#include "ether/address.hpp"
#include "inet/tcp/segment.hpp"
#include "inet/wire/bytes.hpp"
#include "inet/wire/checksum.hpp"
#include "inet/wire/ip_header.hpp"
#include "ofi/address.hpp"

#if !defined(SO_BUF_LOCK)
#define SO_BUF_LOCK 72 // Linux 5.14
#endif

namespace vma::ether {
namespace {

constexpr std::size_t kPiece = 32768;    // of a queue that is written back
constexpr int kNoProbe = -1;             // TCP_REPAIR_OFF_NO_WP
constexpr std::uint8_t kEstablished = 1; // TCP_ESTABLISHED

long call(long result) noexcept
{
    return result < 0 ? -errno : result;
}

template <typename Value> int set(int fd, int level, int name, const Value &value) noexcept
{
    return static_cast<int>(call(::syscall(SYS_setsockopt, fd, level, name, &value, sizeof value)));
}

template <typename Value> int get(int fd, int level, int name, Value &value) noexcept
{
    socklen_t length = sizeof value;
    return static_cast<int>(call(::syscall(SYS_getsockopt, fd, level, name, &value, &length)));
}

int count(int fd, unsigned long request, int &bytes) noexcept
{
    return static_cast<int>(call(::syscall(SYS_ioctl, fd, request, &bytes)));
}

// A socket filter that keeps nothing.
int be_deaf(int fd) noexcept
{
    sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog program{1, &nothing};
    return set(fd, SOL_SOCKET, SO_ATTACH_FILTER, program);
}

bool has_filter(int fd) noexcept
{
    socklen_t instructions = 0;
    return ::syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_GET_FILTER, nullptr, &instructions) != 0 || instructions != 0;
}

void listen_again(int fd) noexcept
{
    static_cast<void>(set(fd, SOL_SOCKET, SO_DETACH_FILTER, 0));
}

int leave_repair(int fd, int reuse) noexcept
{
    const int error = set(fd, IPPROTO_TCP, TCP_REPAIR, kNoProbe);
    static_cast<void>(set(fd, SOL_SOCKET, SO_REUSEADDR, reuse));
    return error;
}

int choose_queue(int fd, int queue) noexcept
{
    return set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, queue);
}

int read_number(int fd, int queue, inet::Seq &number) noexcept
{
    const int error = choose_queue(fd, queue);
    return error != 0 ? error : get(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, number);
}

int write_number(int fd, int queue, inet::Seq number) noexcept
{
    const int error = choose_queue(fd, queue);
    return error != 0 ? error : set(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, number);
}

// The mark of urgent data is ahead of the reader. What is readable ends there for the kernel, unless that data is part
// of the stream.
int look_for_mark(int fd, int readable, bool &ahead) noexcept
{
    int in_stream = 0;
    int otherwise = 0;
    int error = get(fd, SOL_SOCKET, SO_OOBINLINE, in_stream);
    if (error == 0)
        error = set(fd, SOL_SOCKET, SO_OOBINLINE, in_stream == 0 ? 1 : 0);
    if (error != 0)
        return error;
    error = count(fd, SIOCINQ, otherwise);
    static_cast<void>(set(fd, SOL_SOCKET, SO_OOBINLINE, in_stream));
    ahead = otherwise != readable;
    return error;
}

int peek(int fd, int queue, std::size_t length, QueueCopy &bytes) noexcept
{
    bytes.clear();
    if (length == 0)
        return 0;
    if (const int error = choose_queue(fd, queue))
        return error;
    if (!bytes.resize(length))
        return -ENOMEM;
    iovec part{bytes.all().data(), length};
    mmsghdr message{};
    message.msg_hdr.msg_iov = &part;
    message.msg_hdr.msg_iovlen = 1;
    const long n = call(::syscall(SYS_recvmmsg, fd, &message, 1, MSG_PEEK | MSG_DONTWAIT, nullptr));
    if (n < 0)
        return static_cast<int>(n);
    return message.msg_len == length ? 0 : -EAGAIN;
}

int write_bytes(int fd, std::span<const std::uint8_t> bytes) noexcept
{
    while (!bytes.empty()) {
        iovec part{const_cast<std::uint8_t *>(bytes.data()), std::min(bytes.size(), kPiece)};
        mmsghdr message{};
        message.msg_hdr.msg_iov = &part;
        message.msg_hdr.msg_iovlen = 1;
        const long n = call(::syscall(SYS_sendmmsg, fd, &message, 1, MSG_DONTWAIT | MSG_NOSIGNAL));
        if (n < 0)
            return static_cast<int>(n);
        bytes = bytes.subspan(message.msg_len);
    }
    return 0;
}

} // namespace

// ---- out ------------------------------------------------------------------------------------------------------------

int KernelConnection::look(int fd, const QueueSizes &most) noexcept
{
    tcp_info info{};
    fd_ = fd;
    most_ = most;
    local_.length = peer_.length = sizeof(sockaddr_storage);
    if (const long error = call(::syscall(SYS_getsockname, fd, &local_.name, &local_.length)))
        return static_cast<int>(error);
    if (const long error = call(::syscall(SYS_getpeername, fd, &peer_.name, &peer_.length)))
        return static_cast<int>(error);
    if (const int error = get(fd, IPPROTO_TCP, TCP_INFO, info))
        return error;
    if (info.tcpi_state != kEstablished)
        return -ENOTCONN;
    if (has_filter(fd))
        return -EBUSY;
    QueueSizes sizes;
    if (const int error = count_queues(sizes))
        return error;
    ofi::Address local;
    ofi::Address peer;
    if (!local.assign(&local_.name, local_.length) || !peer.assign(&peer_.name, peer_.length))
        return -EAFNOSUPPORT;
    handover.flow = {to_endpoint(local), to_endpoint(peer)};
    return 0;
}

int KernelConnection::take_out() noexcept
{
    int error = get(fd_, SOL_SOCKET, SO_REUSEADDR, reuse_);
    if (error == 0)
        error = be_deaf(fd_);
    if (error != 0)
        return error;
    error = set(fd_, IPPROTO_TCP, TCP_REPAIR, 1);
    if (error != 0) {
        listen_again(fd_);
        return error;
    }
    error = read_state();
    if (error == 0)
        error = read_queues();
    if (error != 0)
        undo();
    return error;
}

void KernelConnection::undo() noexcept
{
    listen_again(fd_);
    static_cast<void>(leave_repair(fd_, reuse_));
}

int KernelConnection::read_state() noexcept
{
    inet::TcpHandover &h = handover;
    tcp_info info{};
    tcp_repair_window window{};
    std::uint32_t stamp = 0;
    int mss = 0;
    int error = get(fd_, IPPROTO_TCP, TCP_INFO, info);
    if (error == 0)
        error = get(fd_, IPPROTO_TCP, TCP_REPAIR_WINDOW, window);
    if (error == 0)
        error = get(fd_, IPPROTO_TCP, TCP_TIMESTAMP, stamp);
    if (error == 0)
        error = get(fd_, IPPROTO_TCP, TCP_MAXSEG, mss); // in repair mode what the peer takes
    if (error == 0)
        error = read_number(fd_, TCP_RECV_QUEUE, h.rcv);
    if (error != 0)
        return error;
    if (info.tcpi_state != kEstablished)
        return -ENOTCONN;
    if ((stamp & 1) != 0 || mss <= 0 || mss > 65535)
        return -EOPNOTSUPP; // a clock of microseconds
    const std::uint8_t options = info.tcpi_options;
    h.timestamps = (options & TCPI_OPT_TIMESTAMPS) != 0;
    h.sack = (options & TCPI_OPT_SACK) != 0;
    h.scaling = (options & TCPI_OPT_WSCALE) != 0;
    h.ecn = (options & TCPI_OPT_ECN) != 0;
    h.send_shift = info.tcpi_snd_wscale;
    h.receive_shift = info.tcpi_rcv_wscale;
    h.peer_mss = static_cast<std::uint16_t>(mss);
    h.timestamp = stamp + 2; // its steps are two
    h.window = window.snd_wnd;
    h.most_window = std::max(window.max_window, window.snd_wnd);
    h.window_seq = window.snd_wl1;
    h.congestion_window = info.tcpi_snd_cwnd;
    h.rtt = info.tcpi_rtt * inet::kMicrosecond;
    h.acked = inet::at_or_before(window.rcv_wup, h.rcv) ? window.rcv_wup : h.rcv;
    h.advertised = inet::later(window.rcv_wup + window.rcv_wnd, h.rcv);
    return 0;
}

int KernelConnection::count_queues(QueueSizes &sizes) const noexcept
{
    int unacknowledged = 0;
    int readable = 0;
    int error = count(fd_, SIOCOUTQ, unacknowledged);
    if (error == 0)
        error = count(fd_, SIOCINQ, readable);
    sizes = {static_cast<std::size_t>(unacknowledged), static_cast<std::size_t>(readable)};
    return error == 0 && (sizes.queued > most_.queued || sizes.unread > most_.unread) ? -EAGAIN : error;
}

int KernelConnection::read_queues() noexcept
{
    inet::TcpHandover &h = handover;
    inet::Seq end = 0;
    QueueSizes sizes{};
    int unsent = 0;
    int error = count(fd_, SIOCOUTQNSD, unsent);
    if (error == 0)
        error = count_queues(sizes);
    bool marked = false;
    if (error == 0)
        error = look_for_mark(fd_, static_cast<int>(sizes.unread), marked);
    if (error == 0 && marked)
        error = -EAGAIN; // until it is read: it has no place but here
    if (error == 0)
        error = read_number(fd_, TCP_SEND_QUEUE, end);
    if (error == 0)
        error = peek(fd_, TCP_SEND_QUEUE, sizes.queued, queued);
    if (error == 0)
        error = peek(fd_, TCP_RECV_QUEUE, sizes.unread, unread);
    h.una = end - static_cast<inet::Seq>(sizes.queued);
    h.nxt = end - static_cast<inet::Seq>(std::min(static_cast<std::size_t>(unsent), sizes.queued));
    return error;
}

int KernelConnection::empty() noexcept
{
    inet::Seq rcv = 0;
    int unsent = 0;
    int error = read_number(fd_, TCP_RECV_QUEUE, rcv);
    if (error == 0)
        error = count(fd_, SIOCOUTQNSD, unsent);
    if (error != 0)
        return error;
    if (rcv != handover.rcv)
        return -EAGAIN;
    const auto left = std::min(static_cast<std::size_t>(unsent), queued.size());
    handover.nxt = handover.una + static_cast<inet::Seq>(queued.size() - left);
    error = queued.size() == 0 && unread.size() == 0 ? 0 : connect_again();
    return error != 0 ? error : choose_queue(fd_, TCP_NO_QUEUE); // who writes to it past us is refused, not swallowed
}

// ---- back -----------------------------------------------------------------------------------------------------------

// A port that was bound before, by the program or by us, is still the socket's.
int KernelConnection::bind_again() noexcept
{
    const long error = call(::syscall(SYS_bind, fd_, &local_.name, local_.length));
    if (error != -EINVAL)
        return static_cast<int>(error);
    Address now{};
    now.length = sizeof now.name;
    ofi::Address local;
    const bool same = ::syscall(SYS_getsockname, fd_, &now.name, &now.length) == 0 &&
                      local.assign(&now.name, now.length) && to_endpoint(local) == handover.flow.local;
    return same ? 0 : -EINVAL;
}

// In repair mode no segment is sent by any of this.
int KernelConnection::connect_again() noexcept
{
    const sockaddr unspecified{};
    int told = 0; // ECONNABORTED
    long error = call(::syscall(SYS_connect, fd_, &unspecified, sizeof unspecified));
    if (error == 0)
        error = get(fd_, SOL_SOCKET, SO_ERROR, told);
    if (error == 0)
        error = bind_again();
    if (error == 0)
        error = write_number(fd_, TCP_SEND_QUEUE, handover.una);
    if (error == 0)
        error = write_number(fd_, TCP_RECV_QUEUE, handover.rcv - static_cast<inet::Seq>(unread.size()));
    if (error == 0)
        error = connect_with_segments();
    return static_cast<int>(error);
}

// connect() in repair mode reckons with the smallest segments, as if the peer had not said what it takes, unless
// TCP_MAXSEG says more.
int KernelConnection::connect_with_segments() noexcept
{
    const int wanted = handover.peer_mss;
    static_cast<void>(set(fd_, IPPROTO_TCP, TCP_MAXSEG, wanted));
    const long error = call(::syscall(SYS_connect, fd_, &peer_.name, peer_.length));
    static_cast<void>(set(fd_, IPPROTO_TCP, TCP_MAXSEG, 0));
    return static_cast<int>(error);
}

int KernelConnection::restore_options() noexcept
{
    constexpr std::uint32_t kMss = 2;
    constexpr std::uint32_t kWindowScale = 3;
    constexpr std::uint32_t kSackPermitted = 4;
    constexpr std::uint32_t kTimestamps = 8;
    const inet::TcpHandover &h = handover;
    std::array<tcp_repair_opt, 4> options{};
    std::size_t used = 0;
    options[used++] = {kMss, h.peer_mss};
    if (h.scaling)
        options[used++] = {kWindowScale, h.send_shift | std::uint32_t{h.receive_shift} << 16};
    if (h.sack)
        options[used++] = {kSackPermitted, 0};
    if (h.timestamps)
        options[used++] = {kTimestamps, 0};
    const long error =
        call(::syscall(SYS_setsockopt, fd_, IPPROTO_TCP, TCP_REPAIR_OPTIONS, options.data(), used * sizeof options[0]));
    if (error != 0 || !h.timestamps)
        return static_cast<int>(error);
    return set(fd_, IPPROTO_TCP, TCP_TIMESTAMP, (h.timestamp + 1) & ~std::uint32_t{1});
}

int KernelConnection::restore_queues() noexcept
{
    const auto in_flight = static_cast<std::size_t>(handover.nxt - handover.una);
    int error = choose_queue(fd_, TCP_RECV_QUEUE);
    if (error == 0)
        error = write_bytes(fd_, unread.all());
    if (error == 0)
        error = choose_queue(fd_, TCP_SEND_QUEUE);
    if (error == 0)
        error = write_bytes(fd_, queued.all().first(in_flight)); // as if they had been sent
    return error;
}

int KernelConnection::restore_window() noexcept
{
    const inet::TcpHandover &h = handover;
    tcp_repair_window window{};
    window.snd_wl1 = h.window_seq;
    window.snd_wnd = h.window;
    window.max_window = h.most_window;
    window.rcv_wup = h.acked;
    window.rcv_wnd = h.advertised - h.acked;
    return set(fd_, IPPROTO_TCP, TCP_REPAIR_WINDOW, window);
}

// The buffers that the kernel chose may be too small for what is in the queues.
void KernelConnection::widen_buffers() noexcept
{
    const int room = static_cast<int>(std::max(queued.size(), unread.size())) * 4;
    Buffers &was = buffers_;
    was = {};
    if (get(fd_, SOL_SOCKET, SO_SNDBUF, was.send) != 0 || get(fd_, SOL_SOCKET, SO_RCVBUF, was.receive) != 0 ||
        room <= std::min(was.send, was.receive))
        return;
    was.wider = true;
    was.has_locks = get(fd_, SOL_SOCKET, SO_BUF_LOCK, was.locks) == 0;                     // Linux 5.14
    static_cast<void>(set(fd_, SOL_SOCKET, SO_SNDBUFFORCE, std::max(room, was.send / 2))); // it is told doubled
    static_cast<void>(set(fd_, SOL_SOCKET, SO_RCVBUFFORCE, std::max(room, was.receive / 2)));
}

void KernelConnection::narrow_buffers() noexcept
{
    if (!buffers_.wider)
        return;
    static_cast<void>(set(fd_, SOL_SOCKET, SO_SNDBUFFORCE, buffers_.send / 2));
    static_cast<void>(set(fd_, SOL_SOCKET, SO_RCVBUFFORCE, buffers_.receive / 2));
    if (buffers_.has_locks)
        static_cast<void>(set(fd_, SOL_SOCKET, SO_BUF_LOCK, buffers_.locks));
}

int KernelConnection::put_back() noexcept
{
    int error = connect_again();
    if (error != 0)
        return error;
    widen_buffers();
    error = restore_options();
    if (error == 0)
        error = restore_queues();
    if (error == 0)
        error = restore_window();
    return error;
}

// The ending before anything else comes: Linux drops what acknowledges less than it knows to be acknowledged since it
// was connected.
int KernelConnection::resume(Ending ending, KernelReturn &back) noexcept
{
    listen_again(fd_);
    int error = leave_repair(fd_, reuse_);
    if (error == 0 && ending != Ending::kNone)
        error = tell_ending(ending, back);
    return error;
}

int KernelConnection::finish() noexcept
{
    const int error = write_bytes(fd_, queued.all().subspan(handover.nxt - handover.una));
    narrow_buffers();
    return error;
}

void KernelConnection::give_up() noexcept
{
    const sockaddr unspecified{};
    int told = 0;
    static_cast<void>(::syscall(SYS_connect, fd_, &unspecified, sizeof unspecified));
    static_cast<void>(get(fd_, SOL_SOCKET, SO_ERROR, told));
    undo();
}

// The segment that the peer has sent and that the stack has taken, once more.
int KernelConnection::tell_ending(Ending ending, KernelReturn &back) const noexcept
{
    const inet::Flow &flow = handover.flow;
    inet::Segment segment;
    segment.source_port = flow.remote.port;
    segment.target_port = flow.local.port;
    segment.flags = ending == Ending::kFin ? inet::kFin | inet::kAck : inet::kRst | inet::kAck;
    segment.seq = handover.rcv;
    segment.ack = handover.una;
    segment.window = static_cast<std::uint16_t>(std::min(handover.window >> handover.send_shift, 0xffffU));
    std::array<std::uint8_t, 128> packet{};
    const bool v4 = flow.local.address.is_v4();
    const std::size_t ip = v4 ? inet::kIpv4Header : inet::kIpv6Header;
    const std::size_t tcp = inet::write_tcp_header(packet.data() + ip, segment);
    inet::seal_segment(packet.data() + ip,
                       inet::sum_tcp_header(packet.data() + ip, tcp, 0, flow.remote.address, flow.local.address));
    inet::IpOut header;
    header.source = flow.remote.address;
    header.target = flow.local.address;
    header.protocol = inet::Protocol::kTcp;
    inet::write_ip_header(packet.data(), header, tcp);
    const iovec whole{packet.data(), ip + tcp};
    return back.send({&whole, 1});
}

} // namespace vma::ether
