// SPDX-License-Identifier: BSD-2-Clause
// Calls that move bytes, on a tracked socket of whatever protocol: to that, and past the program's receive callback.
#include <algorithm>

#include "compat/src/base/arguments.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/tcp/inq.hpp"

namespace vma::sock {

ssize_t send(Socket &s, int fd, const void *buf, std::size_t len, int flags)
{
    return protocol(s).send(s, fd, buf, len, flags);
}

ssize_t send_to(Socket &s, int fd, const void *buf, std::size_t len, int flags, const sockaddr *to, socklen_t to_len)
{
    return protocol(s).send_to(s, fd, buf, len, flags, to, to_len);
}

ssize_t send_msg(Socket &s, int fd, const msghdr *msg, int flags)
{
    return protocol(s).send_msg(s, fd, msg, flags);
}

ssize_t send_file(Socket &s, int fd, int in_fd, off64_t *offset, std::size_t count)
{
    return protocol(s).send_file(s, fd, in_fd, offset, count);
}

int bytes_unsent(Socket &s, int fd, unsigned long request, int *count)
{
    return protocol(s).bytes_unsent(s, fd, request, count);
}

ssize_t receive_past_inq(Socket &s, int fd, msghdr *msg, int flags)
{
    return is_screened(s) ? kExtraApi.receive_screened(s, fd, *msg, flags) : receive_unscreened(s, fd, msg, flags);
}

ssize_t receive_msg(Socket &s, int fd, msghdr *msg, int flags)
{
    const std::uint8_t extras = s.receive_extras.load(std::memory_order_relaxed);
    if (extras != 0) [[unlikely]]
        return (extras & kTellsInq) != 0 ? receive_telling_inq(as_stream(s), fd, msg, flags)
                                         : receive_past_inq(s, fd, msg, flags);
    return receive_unscreened(s, fd, msg, flags);
}

ssize_t receive_unscreened(Socket &s, int fd, msghdr *msg, int flags)
{
    return protocol(s).receive_msg(s, fd, msg, flags);
}

namespace {

[[gnu::noinline]] ssize_t receive_screened(Socket &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from,
                                           socklen_t *from_len)
{
    iovec v = {buf, std::min(len, kMostBytes)};
    msghdr msg = {};
    msg.msg_iov = &v;
    msg.msg_iovlen = 1;
    const int wrong = from != nullptr ? refused_place(from_len) : 0;
    msg.msg_name = wrong == 0 ? from : nullptr;
    msg.msg_namelen = msg.msg_name != nullptr ? *from_len : 0;
    const ssize_t n = kExtraApi.receive_screened(s, fd, msg, flags);
    if (n < 0 || from == nullptr)
        return n;
    if (wrong != 0)
        return give(wrong);
    *from_len = msg.msg_namelen;
    return n;
}

} // namespace

ssize_t receive(Socket &s, int fd, void *buf, std::size_t len, int flags)
{
    if (is_screened(s)) [[unlikely]]
        return receive_screened(s, fd, buf, len, flags, nullptr, nullptr);
    return protocol(s).receive(s, fd, buf, len, flags);
}

ssize_t receive_from(Socket &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from, socklen_t *from_len)
{
    if (is_screened(s)) [[unlikely]]
        return receive_screened(s, fd, buf, len, flags, from, from_len);
    return protocol(s).receive_from(s, fd, buf, len, flags, from, from_len);
}

} // namespace vma::sock
