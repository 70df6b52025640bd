// SPDX-License-Identifier: BSD-2-Clause
// An io_uring of liburing's, closed at its end.
#pragma once

#include <liburing.h>

#include <cerrno>
#include <cstring>

#include "fabtests/sockets/programs/peer.hpp"

namespace fabtest {

class Liburing
{
public:
    explicit Liburing(unsigned entries, unsigned flags = 0)
    {
        if (const int error = ::io_uring_queue_init(entries, &its, flags))
            die("io_uring_queue_init: %s", strerrorname_np(-error));
    }
    Liburing(const Liburing &) = delete;
    Liburing &operator=(const Liburing &) = delete;
    ~Liburing() { ::io_uring_queue_exit(&its); }

    io_uring_sqe *next()
    {
        io_uring_sqe *const entry = ::io_uring_get_sqe(&its);
        if (entry == nullptr)
            die("no entry is free");
        return entry;
    }
    // The next completion's result, for as long as it takes.
    int result()
    {
        io_uring_cqe *done = nullptr;
        int error = 0;
        do
            error = ::io_uring_wait_cqe(&its, &done);
        while (error == -EINTR);
        if (error != 0)
            die("io_uring_wait_cqe: %s", strerrorname_np(-error));
        const int result = done->res;
        ::io_uring_cqe_seen(&its, done);
        return result;
    }
    // As liburing does where it hands over.
    unsigned publish()
    {
        const unsigned count = ::io_uring_sq_ready(&its);
        its.sq.sqe_head = its.sq.sqe_tail;
        __atomic_store_n(its.sq.ktail, its.sq.sqe_tail, __ATOMIC_RELEASE);
        return count;
    }

    io_uring its = {};
};

inline const char *name_of(int result)
{
    return result < 0 ? strerrorname_np(-result) : "0";
}

} // namespace fabtest
