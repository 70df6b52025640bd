// SPDX-License-Identifier: BSD-2-Clause
// A soak's options of sockets: how much room each side has, and how fast it may send. Both change how far a stream may
// be ahead of its reader, and so where what was sent stands when somebody forks, ends or is killed.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "fabtests/posix/programs/soak/worker.hpp"

namespace soak {

namespace {

constexpr int kSendSizes[] = {1, 4096, 16384, 65536, 262144, 1 << 20}; // the kernel makes more of the first one
// No smaller ones: where not much more than a segment of the loopback device fits, the kernel's sender waits for its
// timer, longer and longer (65,536: 0.2 to 0.4 s were measured between plain programs).
constexpr int kReceiveSizes[] = {262144, 1 << 20};
constexpr std::uint64_t kRates[] = {1 << 20, 4 << 20, 64 << 20,
                                    ~std::uint64_t{0}}; // bytes a second; the last: no limit

void set(const Held &h, const char *call, int name, const void *value, socklen_t len)
{
    const int result = ::setsockopt(h.fd, SOL_SOCKET, name, value, len) == 0 ? 0 : -errno;
    h.mine().history.add(call, 0, len, result);
    if (result != 0)
        fail(h.stream, "%s: %s", call, strerrorname_np(-result));
}

// A receive buffer that becomes smaller than what lies in it makes the kernel drop the acknowledgements that come in
// too: the other direction's sender has all its bytes unacknowledged and waits for its timer, longer and longer, until
// this one is read (seen in ss: 678,912 bytes of 524,288, seven retransmissions of what the peer had long received).
bool would_shrink(int fd, int size)
{
    int now = 0; // twice what was asked for
    socklen_t len = sizeof now;
    return ::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &now, &len) != 0 || 2 * size < now;
}

} // namespace

void set_buffers(Worker &w)
{
    const Held *const h = w.any();
    if (h == nullptr)
        return;
    doing(w, "buffers", h->stream);
    const bool sends = w.one_in(2);
    const int size =
        sends ? kSendSizes[w.below(std::size(kSendSizes))] : kReceiveSizes[w.below(std::size(kReceiveSizes))];
    if (!sends && would_shrink(h->fd, size))
        return;
    h->mine().shrunk =
        true; // before: a call that is being chosen just now may still wait, for as long as another one reads
    set(*h, sends ? "SO_SNDBUF" : "SO_RCVBUF", sends ? SO_SNDBUF : SO_RCVBUF, &size, sizeof size);
}

void set_rate(Worker &w)
{
    const Held *const h = w.any();
    if (h == nullptr)
        return;
    doing(w, "pacing", h->stream);
    const std::uint64_t rate = kRates[w.below(std::size(kRates))];
    set(*h, "SO_MAX_PACING_RATE", SO_MAX_PACING_RATE, &rate, sizeof rate);
}

} // namespace soak
