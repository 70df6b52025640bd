// SPDX-License-Identifier: BSD-2-Clause
// Functions of liburing's later releases, on kernels that don't have what they need, and where they fail.
//   newer min, newer min_missing, newer reg_missing, newer close, newer close_unregistered, newer resize
#include "fabtests/posix/programs/liburing/newer.hpp"

#include <cstdio>
#include <string>

#include "fabtests/posix/programs/liburing/ring.hpp"
#include "fabtests/sockets/programs/ends.hpp"

using namespace fabtest;

namespace {

using Wait = int (*)(io_uring *uring, io_uring_cqe **done);

int wait_least(io_uring *uring, io_uring_cqe **done)
{
    __kernel_timespec most = {30, 0};
    return ::io_uring_submit_and_wait_min_timeout(uring, done, 1, &most, 1, nullptr);
}

int wait_by_region(io_uring *uring, io_uring_cqe **done)
{
    return ::io_uring_submit_and_wait_reg(uring, done, 1, 0);
}

// Nothing is handed over, and what a program has before doesn't change.
void fails(Liburing &uring, Wait wait)
{
    io_uring_cqe none = {};
    io_uring_cqe *done = &none;
    const unsigned before = *uring.its.sq.khead;
    std::printf("it fails: %s", name_of(wait(&uring.its, &done)));
    std::printf(", untouched: %d, taken: %u\n", done == &none, *uring.its.sq.khead - before);
    std::printf("then: %d\n", ::io_uring_submit(&uring.its));
}

void use(Liburing &uring, const std::string &how)
{
    io_uring_cqe *done = nullptr;
    io_uring_params bigger = {};
    if (how == "min") {
        std::printf("it waits: %d", wait_least(&uring.its, &done));
        std::printf(", %d\n", done != nullptr);
    } else if (how == "min_missing") {
        uring.its.features &= ~kMinTimeout;
        fails(uring, wait_least);
    } else if (how == "reg_missing") {
        uring.its.features &= ~kRwAttr;
        fails(uring, wait_by_region);
    } else if (how == "resize") {
        std::printf("resized: %s\n", name_of(::io_uring_resize_rings(&uring.its, &bigger)));
    } else {
        if (how == "close")
            std::printf("registered: %d\n", ::io_uring_register_ring_fd(&uring.its));
        const int result = ::io_uring_close_ring_fd(&uring.its);
        std::printf("closed: %d, %s\n", result, name_of(result));
    }
}

} // namespace

int main(int, char **argv)
{
    const std::string how = argv[1];
    const Ends other = accelerated();
    Liburing uring(8);
    const Ends taken = accelerated();
    send_all(taken.a, "first.", 6);
    ::io_uring_prep_send(uring.next(), taken.a, "second", 6, 0);
    use(uring, how);
    if (how.find("close") == 0 || how == "resize")
        std::printf("handed over: %d\n", ::io_uring_submit(&uring.its));
    std::printf("result: %d\n", uring.result());
    char text[13] = {};
    receive_all(taken.b, text, 12);
    std::printf("received: %s\n", text);
    talk(taken, 50);
    talk(other, 50);
}
