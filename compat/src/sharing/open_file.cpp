// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/sharing/open_file.hpp"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "compat/src/base/probes.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/table/timeouts.hpp"

namespace vma::sock {

std::uint8_t tcp_state(int fd)
{
    tcp_info info = {};
    socklen_t size = sizeof info;
    return libc::real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_state : std::uint8_t{kClose};
}

namespace {

// The kernel says of neither direction who has ended it, but that poll() tells of the end of what comes, and TCP's
// state which end has come from the peer: the look at that comes last, as it may come meanwhile.
bool was_shut_down(const Stream &s, int fd)
{
    const std::uint8_t state = tcp_state(fd);
    if (state == kClose)
        return false; // it was reset
    const bool sends = state == kEstablished || state == kCloseWait;
    if (!sends && !s.send_shut.load(std::memory_order_relaxed))
        return true;
    pollfd p = {fd, POLLRDHUP, 0};
    return !peer_has_ended(state) && !s.receive_shut.load(std::memory_order_relaxed) &&
           libc::uncancelled::poll_now(&p, 1) > 0 && (p.revents & POLLRDHUP) != 0 && !peer_has_ended(tcp_state(fd));
}

} // namespace

// Another thread may change it meanwhile, and note that: what is noted last has to be what holds.
void follow_nonblocking(Socket &s, int fd)
{
    constexpr int kTries = 16;
    int flags = libc::real.fcntl(fd, F_GETFL);
    for (int i = 0; i < kTries && flags >= 0; ++i) {
        set_nonblocking(s, (flags & O_NONBLOCK) != 0);
        const int after = libc::real.fcntl(fd, F_GETFL);
        if (after == flags)
            return;
        flags = after;
    }
}

bool follow_open_file(Socket &s)
{
    const int fd = s.any_fd.load(std::memory_order_relaxed);
    follow_nonblocking(s, fd);
    read_timeouts(s, fd);
    Stream *const stream = stream_of(s);
    if (stream != nullptr)
        read_inq(s, fd);
    if (stream == nullptr || !was_shut_down(*stream, fd))
        return true;
    s.pinned.store(true, std::memory_order_release);
    s.kernel_reason = "another process has shut it down";
    probe::fallback(fd, s.kernel_reason, false);
    return false;
}

} // namespace vma::sock
