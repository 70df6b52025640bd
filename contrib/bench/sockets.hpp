// SPDX-License-Identifier: BSD-2-Clause
// What several of the programs here do with sockets. A call that fails ends the program.
#pragma once

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

// That sends at once.
inline int eager(int fd)
{
    const int on = 1;
    must(::setsockopt(must(fd), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    return fd;
}

} // namespace bench
