// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/posix/programs/liburing/late.hpp"

#include <dlfcn.h>

#include <cstdlib>

[[gnu::visibility("default")]] LateEntry &late_entry()
{
    static LateEntry entry = {};
    return entry;
}

namespace {

void add()
{
    LateEntry &late = late_entry();
    io_uring *const uring = late.uring;
    if (uring == nullptr)
        return;
    late.uring = nullptr;
    io_uring_sqe *const entry = ::io_uring_get_sqe(uring);
    ::io_uring_prep_send(entry, late.fd, "second", 6, 0);
    if (!late.published)
        return;
    uring->sq.sqe_head = uring->sq.sqe_tail;
    __atomic_store_n(uring->sq.ktail, uring->sq.sqe_tail, __ATOMIC_RELEASE);
}

template <typename Function> Function *next(const char *name, Function *)
{
    void *const found = ::dlsym(RTLD_NEXT, name);
    if (found == nullptr)
        std::abort();
    return reinterpret_cast<Function *>(found);
}

} // namespace

extern "C" [[gnu::visibility("default")]] int io_uring_submit(io_uring *uring)
{
    add();
    return next("io_uring_submit", &io_uring_submit)(uring);
}

extern "C" [[gnu::visibility("default")]] int io_uring_submit_and_wait_timeout(io_uring *uring, io_uring_cqe **done,
                                                                               unsigned least, __kernel_timespec *most,
                                                                               sigset_t *mask)
{
    add();
    return next("io_uring_submit_and_wait_timeout", &io_uring_submit_and_wait_timeout)(uring, done, least, most, mask);
}
