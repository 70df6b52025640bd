// SPDX-License-Identifier: BSD-2-Clause
// The table by which the interception layer calls the waits. It is as it stands here unless somebody traces them.
#include "compat/src/libc/sections.hpp"
#include "compat/src/mux/mux.hpp"

namespace vma::mux {

[[VMA_STARTUP_DATA]] constinit WaitCalls g_wait_calls = {
    .poll = poll,
    .select = select,
    .epoll_wait = epoll_wait,
    .epoll_wait_ms = epoll_wait_ms,
};

} // namespace vma::mux
