// SPDX-License-Identifier: BSD-2-Clause
// liburing_plugin.so: a plug-in that brings liburing for itself. Each function ends with the call of liburing's, and so
// leaves its caller's address there.
#pragma once

#include <liburing.h>

struct Plugin {
    int (*begin)(io_uring *uring, unsigned flags);
    int (*submit)(io_uring *uring);
    int (*submit_and_wait)(io_uring *uring, unsigned least);
    void (*end)(io_uring *uring);
};

inline constexpr char kPlugin[] = "plugin";         // a function that returns one
inline constexpr char kRing[] = "FABTEST_LIBURING"; // in the environment: where constructed.so finds an io_uring
