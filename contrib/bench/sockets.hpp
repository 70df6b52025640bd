// SPDX-License-Identifier: BSD-2-Clause
// What several of the programs here do with sockets. A call that fails ends the program.
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>

namespace bench {

inline int must(int result)
{
    if (result < 0) {
        std::perror(program_invocation_short_name);
        std::exit(1);
    }
    return result;
}

inline sockaddr *generic(sockaddr_in &a)
{
    return reinterpret_cast<sockaddr *>(&a);
}

// On loopback, with a port of its own.
inline int bound(int type, sockaddr_in &at)
{
    socklen_t size = sizeof at;
    at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = must(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
    must(::bind(fd, generic(at), size));
    must(::getsockname(fd, generic(at), &size));
    return fd;
}

// That sends at once.
inline int eager(int fd)
{
    const int on = 1;
    must(::setsockopt(must(fd), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    return fd;
}

} // namespace bench
