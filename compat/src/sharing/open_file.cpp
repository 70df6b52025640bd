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

namespace {

enum : std::uint8_t { kEstablished = 1, kFinWait1 = 4, kFinWait2 = 5, kCloseWait = 8 }; // of the kernel's TCP

// Of a connection that is there. The kernel says of neither direction who has ended it, but that poll() tells of the
// end of what comes, and TCP's state which end has come from the peer.
bool was_shut_down(const Stream &s, int fd)
{
    tcp_info info = {};
    socklen_t size = sizeof info;
    if (libc::real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return false;
    const std::uint8_t state = info.tcpi_state;
    const bool sends = state == kEstablished || state == kCloseWait;
    if (!sends && !s.send_shut.load(std::memory_order_relaxed))
        return true;
    pollfd p = {fd, POLLRDHUP, 0};
    const bool no_end_came = state == kEstablished || state == kFinWait1 || state == kFinWait2;
    return no_end_came && !s.receive_shut.load(std::memory_order_relaxed) && libc::uncancelled::poll_now(&p, 1) > 0 &&
           (p.revents & POLLRDHUP) != 0;
}

} // namespace

bool follow_open_file(Socket &s)
{
    const int fd = s.any_fd.load(std::memory_order_relaxed);
    if (const int flags = libc::real.fcntl(fd, F_GETFL); flags >= 0)
        set_nonblocking(s, (flags & O_NONBLOCK) != 0);
    read_timeouts(s, fd);
    const Stream *const stream = stream_of(s);
    if (stream == nullptr || !was_shut_down(*stream, fd))
        return true;
    s.pinned.store(true, std::memory_order_release);
    s.kernel_reason = "another process has shut it down";
    probe::fallback(fd, s.kernel_reason, false);
    return false;
}

} // namespace vma::sock
