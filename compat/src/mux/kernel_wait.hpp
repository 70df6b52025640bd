// SPDX-License-Identifier: BSD-2-Clause
// The kernel's epoll wait with a timeout in nanoseconds. Private to compat/src/mux.
#pragma once

#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

namespace vma::mux {

// `timeout` nullptr: for ever. `mask` nullptr: leave the signal mask. Milliseconds are rounded up where the kernel
// knows nothing finer.
int kernel_wait(int epfd, epoll_event *events, int max, const timespec *timeout, const sigset_t *mask);

} // namespace vma::mux
