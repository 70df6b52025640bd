// SPDX-License-Identifier: BSD-2-Clause
// Options of the kernel's socket that are numbers.
#pragma once

#include <sys/socket.h>

#include "compat/src/libc/real.hpp"

namespace vma::libc {

// `otherwise` where there is none, or a negative one. errno may change.
inline int read_option(int fd, int level, int name, int otherwise)
{
    int value = 0;
    socklen_t size = sizeof value;
    return real.getsockopt(fd, level, name, &value, &size) == 0 && value >= 0 ? value : otherwise;
}

} // namespace vma::libc
