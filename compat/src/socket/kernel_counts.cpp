// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/socket/kernel_counts.hpp"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <cstddef>
#include <cstdint>

#include "compat/src/libc/real.hpp"
#include "compat/src/socket/stream.hpp"

namespace vma::sock {

namespace {

// All that ever went by the kernel, as it counts itself.
struct KernelCounts {
    std::uint64_t acknowledged; // with the SYN of who connected
    std::uint64_t received;
    int queued; // to be read
    int unsent; // or not acknowledged
};

bool read_counts(int fd, KernelCounts &out)
{
    tcp_info info = {};
    socklen_t size = sizeof info;
    if (libc::real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
        size < offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
        return false;
    out.acknowledged = info.tcpi_bytes_acked;
    out.received = info.tcpi_bytes_received;
    return libc::real.ioctl(fd, FIONREAD, &out.queued) == 0 && libc::real.ioctl(fd, SIOCOUTQ, &out.unsent) == 0;
}

// They are read one by one: twice, until nothing has come between.
bool read_settled(int fd, KernelCounts &out)
{
    constexpr int kTries = 4;
    KernelCounts first;
    for (int i = 0; i < kTries; ++i) {
        if (!read_counts(fd, first) || !read_counts(fd, out))
            return false;
        if (first.acknowledged == out.acknowledged && first.received == out.received)
            return true;
    }
    return false;
}

bool in_bare_call(const Socket &s)
{
    return s.bare_receivers.load(std::memory_order_seq_cst) != 0 || s.bare_senders.load(std::memory_order_seq_cst) != 0;
}

} // namespace

// A call adds what it moved before it is over: one that has moved something since the first look is seen at the last one, and one that
// begins later adds to what is set here.
bool take_kernel_counts(Socket &s)
{
    const int fd = s.any_fd.load(std::memory_order_relaxed);
    const std::uint64_t sent = s.tx.kernel_bytes.load(std::memory_order_seq_cst);
    const std::uint64_t received = s.rx.kernel_bytes.load(std::memory_order_seq_cst);
    KernelCounts counts;
    if (in_bare_call(s) || !read_settled(fd, counts) || in_bare_call(s) ||
        s.tx.kernel_bytes.load(std::memory_order_seq_cst) != sent ||
        s.rx.kernel_bytes.load(std::memory_order_seq_cst) != received)
        return false;
    const std::uint64_t syn = s.role == Role::kConnector ? 1 : 0;
    s.tx.kernel_bytes.fetch_add(counts.acknowledged + static_cast<std::uint64_t>(counts.unsent) - syn - sent);
    s.rx.kernel_bytes.fetch_add(counts.received - static_cast<std::uint64_t>(counts.queued) - received);
    return true;
}

} // namespace vma::sock
