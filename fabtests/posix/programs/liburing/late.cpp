// SPDX-License-Identifier: BSD-2-Clause
// An entry that comes between a call of liburing's and liburing, as from another thread, is looked at before it is
// handed over: a send on an accelerated socket, behind bytes that have gone by send(). liburing_late.so adds it.
#include "fabtests/posix/programs/liburing/late.hpp"

#include <cstdio>
#include <cstring>
#include <string>

#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

void must_be_there(io_uring &uring, unsigned count)
{
    for (unsigned i = 0; i < count; ++i) {
        io_uring_cqe *done = nullptr;
        int error = 0;
        do
            error = ::io_uring_wait_cqe(&uring, &done);
        while (error == -EINTR);
        std::printf("result: %d\n", error != 0 ? error : done->res);
        ::io_uring_cqe_seen(&uring, done);
    }
}

} // namespace

int main(int, char **argv)
{
    const std::string how = argv[1];
    io_uring uring = {};
    if (const int error = ::io_uring_queue_init(8, &uring, 0))
        die("io_uring_queue_init: %s", strerrorname_np(-error));
    const Ends ends = accelerated();
    const Ends other = accelerated();
    send_all(ends.a, "first.", 6);
    ::io_uring_prep_nop(::io_uring_get_sqe(&uring));
    late_entry() = {&uring, ends.a, how == "published"};
    __kernel_timespec most = {0, 1000000};
    io_uring_cqe *done = nullptr;
    int taken = how == "timeout" ? ::io_uring_submit_and_wait_timeout(&uring, &done, 1, &most, nullptr)
                                 : ::io_uring_submit(&uring);
    if (late_entry().uring != nullptr)
        die("it was not added");
    taken += ::io_uring_submit(&uring);
    std::printf("handed over: %d\n", taken);
    must_be_there(uring, 2);
    char text[13] = {};
    receive_all(ends.b, text, 12);
    std::printf("received: %s\n", text);
    talk(ends, 50);
    talk(other, 50);
    ::io_uring_queue_exit(&uring);
}
