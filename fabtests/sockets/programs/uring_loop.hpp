// SPDX-License-Identifier: BSD-2-Clause
// A loop that changes its epoll set by an io_uring, as libuv's does.
#pragma once

#include "fabtests/sockets/programs/ends.hpp"

namespace fabtest {

Ends udp_pair(); // connected to each other

// `count` connections, a UDP socket and a pipe are watched, and are answered by the loop.
void libuv_loop(int count);

} // namespace fabtest
