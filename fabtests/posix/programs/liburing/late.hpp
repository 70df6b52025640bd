// SPDX-License-Identifier: BSD-2-Clause
// liburing_late.so: stands before liburing's shared library, and adds one entry between a call and what that does.
#pragma once

#include <liburing.h>

struct LateEntry {
    io_uring *uring; // nullptr: none is to be added, or it has been
    int fd;          // six bytes are sent on it
    bool published;  // what another thread's call would have done as well
};

LateEntry &late_entry();
