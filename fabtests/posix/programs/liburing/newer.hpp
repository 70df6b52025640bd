// SPDX-License-Identifier: BSD-2-Clause
// liburing_newer.so's functions.
#pragma once

#include <liburing.h>

inline constexpr unsigned kMinTimeout = 1U << 15; // IORING_FEAT_MIN_TIMEOUT
inline constexpr unsigned kRwAttr = 1U << 16;     // IORING_FEAT_RW_ATTR

extern "C" {
[[gnu::visibility("default")]] int io_uring_submit_and_wait_min_timeout(io_uring *uring, io_uring_cqe **done,
                                                                        unsigned least, __kernel_timespec *most,
                                                                        unsigned microseconds, sigset_t *mask);
[[gnu::visibility("default")]] int io_uring_submit_and_wait_reg(io_uring *uring, io_uring_cqe **done, unsigned least,
                                                                int place);
[[gnu::visibility("default")]] int io_uring_close_ring_fd(io_uring *uring);
[[gnu::visibility("default")]] int io_uring_resize_rings(io_uring *uring, io_uring_params *parameters);
}
