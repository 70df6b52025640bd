// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/tcp/mapped_receive.hpp"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>

#include <cstddef>

#include "compat/src/libc/fail.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/calls.hpp"

namespace vma::sock {

namespace {

using libc::fail;

constexpr std::size_t kLeast = offsetof(tcp_zerocopy_receive, length) + sizeof(tcp_zerocopy_receive::length);

} // namespace

bool is_mapped_receive(int level, int name)
{
    return level == IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE;
}

int receive_mapped(Stream &s, int fd, void *value, socklen_t *len)
{
    tcp_zerocopy_receive order = {};
    // What is wrong with it, and what is longer than this kernel's header, the kernel says.
    if (!libc::can_update(len, sizeof *len) || *len < kLeast || *len > sizeof order || !libc::can_update(value, *len))
        return libc::real.getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, value, len);
    memcpy(&order, value, *len);
    // First: what comes between the two looks is no end.
    const bool ready = (ready_events(s, live_fd(s, fd), POLLIN) & (POLLIN | POLLHUP)) != 0;
    int readable = 0;
    if (bytes_readable(s, fd, &readable) != 0)
        return -1;
    if (readable == 0 && ready)
        return fail(EIO);
    order.length = 0;
    order.recv_skip_hint = static_cast<std::uint32_t>(readable);
    order.inq = order.recv_skip_hint;
    order.err = 0;
    order.copybuf_len = 0;
    order.msg_flags = 0;
    memcpy(value, &order, *len);
    return 0;
}

} // namespace vma::sock
