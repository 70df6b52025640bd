// SPDX-License-Identifier: BSD-2-Clause
// Options of the kernel's socket that are numbers.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "compat/src/libc/real.hpp"

namespace vma::libc {

// `otherwise` where there is none, or a negative one. errno may change.
inline int read_option(int fd, int level, int name, int otherwise)
{
    int value = 0;
    socklen_t size = sizeof value;
    return real.getsockopt(fd, level, name, &value, &size) == 0 && value >= 0 ? value : otherwise;
}

// SO_COOKIE, by which a socket is known whatever its number is; 0: it is none. errno may change.
inline std::uint64_t read_cookie(int fd)
{
    std::uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    return real.getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

} // namespace vma::libc
