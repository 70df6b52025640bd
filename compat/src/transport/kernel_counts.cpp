// SPDX-License-Identifier: BSD-2-Clause
// The kernel's counters are read one by one: the pair that belongs together is known by the first one not having
// changed, or by a sum that can only be too large and is not.
#include "compat/src/transport/kernel_counts.hpp"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

#include "compat/src/base/probes.hpp"
#include "compat/src/base/sandboxed.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/sharing/holders.hpp"
#include "compat/src/sharing/open_file.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

namespace {

constexpr int kTries = 8; // while acknowledgements or segments come in between

bool read_counts(int fd, tcp_info &info)
{
    socklen_t size = sizeof info;
    info = {};
    return libc::real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           size >= offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received;
}

bool read_info(int fd, tcp_info &info)
{
    return read_counts(fd, info) && info.tcpi_state != kClose;
}

// The peer's FIN is in tcpi_bytes_received as a byte.
std::uint64_t count_fin(const tcp_info &info)
{
    const std::uint8_t state = info.tcpi_state;
    return state == kCloseWait || state == kTimeWait || state == kLastAck || state == kClosing ? 1 : 0;
}

// `counter` and what `request` says of the same moment.
template <typename Counter> bool read_pair(int fd, Counter counter, unsigned long request, tcp_info &info, int &queued)
{
    for (int i = 0; i < kTries; ++i) {
        tcp_info before;
        if (!read_info(fd, before) || libc::real.ioctl(fd, request, &queued) != 0 || !read_info(fd, info))
            return false;
        if (before.*counter == info.*counter && before.tcpi_state == info.tcpi_state)
            return true;
    }
    return false;
}

// `unacknowledged` and `queued`: what SIOCOUTQ and SIOCINQ say.
std::uint64_t sum_sent(const Stream &s, const tcp_info &info, int unacknowledged)
{
    const std::uint64_t syn =
        s.role == Role::kConnector ? 1 : 0; // is acknowledged as a byte; an acceptor's was before it counted
    return info.tcpi_bytes_acked + static_cast<std::uint64_t>(unacknowledged) - syn;
}

std::uint64_t sum_read(const tcp_info &info, int queued)
{
    return info.tcpi_bytes_received - count_fin(info) - static_cast<std::uint64_t>(queued);
}

// What TCP_INFO counts has grown since the queue was asked for, if it has changed: sum_sent() is no less than what was
// sent then, sum_read() no less than what was read. False: the kernel doesn't tell.
bool ask_once(const Stream &s, unsigned long request, tcp_info &info, int &queued)
{
    const int fd = s.any_fd.load(std::memory_order_relaxed);
    return s.port == nullptr && libc::real.ioctl(fd, request, &queued) == 0 && read_info(fd, info);
}

bool surely_sent(const Stream &s, std::uint64_t bytes)
{
    tcp_info info;
    int unacknowledged = 0;
    return ask_once(s, SIOCOUTQ, info, unacknowledged) && sum_sent(s, info, unacknowledged) == bytes;
}

bool surely_read(const Stream &s, std::uint64_t bytes)
{
    tcp_info info;
    int queued = 0;
    return ask_once(s, SIOCINQ, info, queued) && sum_read(info, queued) == bytes;
}

} // namespace

bool kernel_sent(const Stream &s, std::uint64_t &bytes)
{
    tcp_info info;
    int unacknowledged = 0;
    if (s.port != nullptr || !read_pair(s.any_fd.load(std::memory_order_relaxed), &tcp_info::tcpi_bytes_acked, SIOCOUTQ,
                                        info, unacknowledged))
        return false;
    bytes = sum_sent(s, info, unacknowledged);
    return true;
}

bool kernel_read(const Stream &s, std::uint64_t &bytes)
{
    tcp_info info;
    int queued = 0;
    if (s.port != nullptr ||
        !read_pair(s.any_fd.load(std::memory_order_relaxed), &tcp_info::tcpi_bytes_received, SIOCINQ, info, queued))
        return false;
    bytes = sum_read(info, queued);
    return true;
}

// Where the library at the other end has reset the connection, the kernel has said so to whoever asked first. What is
// known to come before the end tells whether some of it is missing. Between hosts nobody knows how much comes; but a
// FIN is counted as a byte behind those that were read, and stays counted. (Where other processes have read some, or a
// call that the library doesn't count, the kernel is believed.) On one host a program's own reset is told as by the
// kernel: once, to whoever asks first.
bool has_ended_early(const Stream &s)
{
    const Receiver &rx = s.rx;
    const std::uint64_t read = rx.kernel_bytes.load(std::memory_order_relaxed);
    const std::uint64_t start = rx.start_at.load(std::memory_order_acquire);
    const bool has_span_behind = start != kNone && rx.path.load(std::memory_order_relaxed) == Path::kKernel;
    const std::uint64_t owed =
        std::max(rx.kernel_owes.load(std::memory_order_relaxed), has_span_behind ? start : std::uint64_t{0});
    const bool needs_fin = s.evaluated && s.port == nullptr && !transport(s).ordered; // the peer may offload it
    tcp_info info;
    if ((owed <= read && !needs_fin) || sandboxed() ||
        !read_counts(live_fd(s, s.any_fd.load(std::memory_order_relaxed)), info) || info.tcpi_state != kClose)
        return false;
    return info.tcpi_bytes_received < owed || (needs_fin && info.tcpi_bytes_received == read);
}

namespace {

bool agrees(const Stream &s, const char *what, std::uint64_t kernel, std::uint64_t library)
{
    char name[kNameMax];
    if (kernel != library)
        VMA_LOG(kDebug, "%s: by the kernel %llu bytes were %s, and by the library %llu of them",
                connection_name(s, name), static_cast<unsigned long long>(kernel), what,
                static_cast<unsigned long long>(library));
    return kernel == library;
}

} // namespace

bool kernel_agrees_on_sent(const Stream &s, std::uint64_t bytes)
{
    std::uint64_t counted = 0;
    return surely_sent(s, bytes) || !kernel_sent(s, counted) || agrees(s, "sent", counted, bytes);
}

bool kernel_agrees_on_read(const Stream &s, std::uint64_t bytes)
{
    std::uint64_t counted = 0;
    return surely_read(s, bytes) || !kernel_read(s, counted) || agrees(s, "read", counted, bytes);
}

void note_uncounted(Stream &s)
{
    char name[kNameMax];
    s.pinned.store(true, std::memory_order_release);
    s.kernel_reason = "bytes were moved past the library";
    probe::fallback(s.any_fd.load(std::memory_order_relaxed), s.kernel_reason, false);
    VMA_LOG(kDetails,
            "%s: not accelerated: the kernel counts bytes that were moved past the library, by another process or call",
            connection_name(s, name));
}

namespace {

// What the others moved is in the kernel's count alone. A call of ours adds what it moved before it is over: one that
// has moved something since the first look is seen at the last one, and one that begins later adds to what is set here.
// A call that began by an endpoint, and goes on by the kernel, does that with the direction's lock held.
bool take_count(const Stream &s, Mutex &lock, const std::atomic<std::uint32_t> &calls,
                std::atomic<std::uint64_t> &bytes, bool (*kernel_count)(const Stream &, std::uint64_t &))
{
    const LockGuard guard(lock);
    const std::uint64_t counted = bytes.load(std::memory_order_seq_cst);
    std::uint64_t all = 0;
    if (calls.load(std::memory_order_seq_cst) != 0 || !kernel_count(s, all) ||
        calls.load(std::memory_order_seq_cst) != 0 || bytes.load(std::memory_order_seq_cst) != counted)
        return false;
    bytes.fetch_add(all - counted);
    return true;
}

} // namespace

// Each direction by itself: of a thread that sends all the time and one that receives all the time, one is always in
// the kernel.
bool take_kernel_counts(Stream &s)
{
    const std::uint32_t forks = g_held.forks.load(std::memory_order_relaxed);
    if (s.sent_counted_at != forks && take_count(s, s.tx_lock, s.blocked_senders, s.tx.kernel_bytes, kernel_sent))
        s.sent_counted_at = forks;
    if (s.received_counted_at != forks && take_count(s, s.rx_lock, s.blocked_receivers, s.rx.kernel_bytes, kernel_read))
        s.received_counted_at = forks;
    return s.sent_counted_at == forks && s.received_counted_at == forks;
}

} // namespace vma::sock
