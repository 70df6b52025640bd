// SPDX-License-Identifier: BSD-2-Clause
// liburing_newer.so: what releases after Debian's have, in front of that. They look at what the kernel can do as these
// do.
#include "fabtests/posix/programs/liburing/newer.hpp"

#include <unistd.h>

#include <cerrno>

int io_uring_submit_and_wait_min_timeout(io_uring *uring, io_uring_cqe **done, unsigned least, __kernel_timespec *most,
                                         unsigned, sigset_t *mask)
{
    if ((uring->features & kMinTimeout) == 0)
        return -EINVAL;
    return ::io_uring_submit_and_wait_timeout(uring, done, least, most, mask);
}

// It is always told of no such region.
int io_uring_submit_and_wait_reg(io_uring *uring, io_uring_cqe **, unsigned, int)
{
    uring->sq.sqe_head = uring->sq.sqe_tail;
    __atomic_store_n(uring->sq.ktail, uring->sq.sqe_tail, __ATOMIC_RELEASE);
    return -EINVAL;
}

int io_uring_close_ring_fd(io_uring *uring)
{
    if (uring->ring_fd == uring->enter_ring_fd)
        return -EINVAL;
    ::close(uring->ring_fd);
    uring->ring_fd = -1;
    return 1;
}

int io_uring_resize_rings(io_uring *, io_uring_params *)
{
    return -EINVAL;
}
