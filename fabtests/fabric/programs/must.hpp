// SPDX-License-Identifier: BSD-2-Clause
// How test programs that call libfabric end when a call fails.
#pragma once

#include <sys/types.h>

#include <rdma/fi_errno.h>

#include "fabtests/sockets/programs/peer.hpp"

namespace fabtest {

// die() with fi_strerror unless `result` is >= 0, which it returns.
inline int fi_must(ssize_t result, const char *what)
{
    if (result < 0)
        die("%s: %s", what, fi_strerror(static_cast<int>(-result)));
    return static_cast<int>(result);
}

} // namespace fabtest
