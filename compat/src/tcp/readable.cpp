// SPDX-License-Identifier: BSD-2-Clause
// What can be read from a tracked socket without reading it: how many bytes, and whether the next is the urgent one.
#include <limits.h>
#include <sys/ioctl.h>

#include <algorithm>

#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/tcp/calls.hpp"

namespace vma::sock {

namespace {

// What reads would get now: before, in, and behind a span of the endpoint. Settled, rx_lock held. 0 or the kernel's -1.
int count_readable(const Stream &s, int fd, std::uint64_t &total)
{
    const Receiver &rx = s.rx;
    const bool by_endpoint = rx.path.load(std::memory_order_relaxed) == Path::kEndpoint;
    const std::uint64_t start = rx.start_at.load(std::memory_order_acquire);
    const bool ends = rx.end_at.load(std::memory_order_acquire) != kNone;
    const bool returning = rx.returning.load(std::memory_order_acquire);
    const std::uint64_t ring = rx.written.load(std::memory_order_acquire) - rx.consumed.load(std::memory_order_relaxed);
    total = ring;
    if (by_endpoint && !ends && !returning && ring != 0)
        return 0;
    int count = 0;
    if (libc::real.ioctl(fd, FIONREAD, &count) != 0)
        return -1;
    const auto kernel = static_cast<std::uint64_t>(count);
    total = kernel;
    if (returning || (!by_endpoint && start == kNone))
        return 0;
    const std::uint64_t before = by_endpoint ? 0 : start - rx.kernel_bytes.load(std::memory_order_relaxed);
    if (kernel >= before)
        total = before + ring + (ends || ring == 0 ? kernel - before : 0);
    return 0;
}

} // namespace

int bytes_readable(Socket &s, int fd, int *count)
{
    if (is_screened(s) && kExtraApi.has_ready(s)) [[unlikely]] {
        *count = static_cast<int>(kExtraApi.bytes_ready(s)); // what comes behind them a callback may drop
        return 0;
    }
    return protocol(s).bytes_readable(s, fd, count);
}

int at_mark(Socket &s, int fd, int *mark)
{
    return protocol(s).at_mark(s, fd, mark);
}

namespace tcp {

int bytes_readable(Stream &s, int fd, int *count)
{
    if (!offloaded(s))
        return libc::real.ioctl(fd, FIONREAD, count);
    engine_look(ring_of(s));
    if (QueuedBytes bytes; transport(s).count(s, bytes)) {
        *count = static_cast<int>(bytes.readable);
        return 0;
    }
    LockGuard guard(s.rx_lock);
    settle(s);
    const std::size_t shared = s.unread.load(std::memory_order_relaxed) != nullptr ? shared_left(s) : 0;
    if (shared != 0) {
        int kernel = 0;
        *count = static_cast<int>(shared) + (libc::real.ioctl(fd, FIONREAD, &kernel) == 0 ? kernel : 0);
        return 0;
    }
    std::uint64_t total = 0;
    const int result = count_readable(s, fd, total);
    if (result == 0)
        *count = static_cast<int>(std::min(total, std::uint64_t{INT_MAX}));
    return result;
}

int at_mark(Stream &s, int fd, int *mark)
{
    if (offloaded(s) && transport(s).spans) {
        engine_look(ring_of(s));
        LockGuard guard(s.rx_lock);
        settle(s);
        if (has_input(s)) { // the kernel's bytes, and the mark among them, come behind
            *mark = 0;
            return 0;
        }
    }
    return libc::real.ioctl(fd, SIOCATMARK, mark);
}

} // namespace tcp

} // namespace vma::sock
