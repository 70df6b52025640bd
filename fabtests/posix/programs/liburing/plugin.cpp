// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/posix/programs/liburing/plugin.hpp"

namespace {

int begin(io_uring *uring, unsigned flags)
{
    return ::io_uring_queue_init(8, uring, flags);
}

int submit(io_uring *uring)
{
    return ::io_uring_submit(uring);
}

int submit_and_wait(io_uring *uring, unsigned least)
{
    return ::io_uring_submit_and_wait(uring, least);
}

void end(io_uring *uring)
{
    ::io_uring_queue_exit(uring);
}

} // namespace

extern "C" [[gnu::visibility("default")]] Plugin plugin()
{
    return {begin, submit, submit_and_wait, end};
}
