// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/transport/buffers.hpp"

#include <sys/socket.h>

#include "compat/src/libc/read_option.hpp"

#if !defined(SO_BUF_LOCK)
#define SO_BUF_LOCK 72 // Linux 5.14
#endif

namespace vma::sock {

namespace {

constexpr int kLockedSend = 1; // SO_BUF_LOCK
constexpr int kLockedReceive = 2;

} // namespace

AskedBuffers asked_buffers(int fd)
{
    const int locked = libc::read_option(fd, SOL_SOCKET, SO_BUF_LOCK, 0);
    AskedBuffers asked;
    if ((locked & kLockedSend) != 0)
        asked.send = static_cast<std::uint32_t>(libc::read_option(fd, SOL_SOCKET, SO_SNDBUF, 0) / 2);
    if ((locked & kLockedReceive) != 0)
        asked.receive = static_cast<std::uint32_t>(libc::read_option(fd, SOL_SOCKET, SO_RCVBUF, 0) / 2);
    return asked;
}

} // namespace vma::sock
