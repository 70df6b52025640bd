// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/tcp/inq.hpp"

#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>

#include "compat/src/base/control_writer.hpp"
#include "compat/src/base/option_numbers.hpp"
#include "compat/src/base/sandboxed.hpp"
#include "compat/src/libc/fault.hpp"

namespace vma::sock {

namespace tcp {

bool is_inq(int level, int name)
{
    return level == IPPROTO_TCP && name == option::kTcpInq;
}

void note_inq(Stream &s, const void *value)
{
    int on = 0;
    memcpy(&on, value, sizeof on);
    note_extra(s, kTellsInq, on != 0);
}

} // namespace tcp

namespace {

// The peer's end counts as a byte, before it is read and after, so that who reads until there is nothing comes to it.
int count_left(Stream &s, int fd, bool at_end)
{
    int left = 0;
    if (bytes_readable(s, fd, &left) != 0)
        left = 0;
    const bool ends = at_end || (!s.receive_shut.load(std::memory_order_relaxed) &&
                                 (ready_events(s, fd, POLLRDHUP) & POLLRDHUP) != 0);
    return ends && left < INT_MAX ? left + 1 : left;
}

} // namespace

ssize_t receive_telling_inq(Stream &s, int fd, msghdr *msg, int flags)
{
    const std::size_t room = msg->msg_controllen;
    const bool was_offloaded = offloaded(s);
    const ssize_t n = receive_past_inq(s, fd, msg, flags);
    if (n < 0 || (!was_offloaded && !offloaded(s)) || (flags & (MSG_ERRQUEUE | MSG_OOB)) != 0 || sandboxed())
        return n; // the kernel has told it, of all that there is
    msg->msg_controllen = room;
    msg->msg_flags &= ~MSG_CTRUNC;
    if (msg->msg_control != nullptr && !libc::can_update(msg->msg_control, room)) {
        msg->msg_controllen = 0;
        return n;
    }
    const bool at_end = n == 0 && total_length(*msg) != 0;
    const int left = msg->msg_control != nullptr ? count_left(s, fd, at_end) : 0;
    ControlWriter(msg).put(IPPROTO_TCP, option::kTcpInq, left);
    return n;
}

} // namespace vma::sock
