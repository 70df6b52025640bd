// SPDX-License-Identifier: BSD-2-Clause
// The kernel stops at an entry that is wrong, and so takes what was handed over in parts. HOW: `untimed`, `timed` or
// `cqe`, the function that hands over and waits.
#include <cstdio>
#include <string>

#include "fabtests/posix/programs/liburing/ring.hpp"
#include "fabtests/sockets/programs/ends.hpp"

using namespace fabtest;

namespace {

constexpr unsigned short kNobodys = 999; // a personality
constexpr int kEntries = 3;

int hand_over(Liburing &uring, const std::string &how, io_uring_cqe **done)
{
    __kernel_timespec most = {30, 0};
    if (how == "cqe")
        return ::__io_uring_get_cqe(&uring.its, done, uring.publish(), kEntries, nullptr);
    return ::io_uring_submit_and_wait_timeout(&uring.its, done, kEntries, how == "timed" ? &most : nullptr, nullptr);
}

} // namespace

int main(int, char **argv)
{
    Liburing uring(8);
    const Ends ends = accelerated();
    for (int wrong = 0; wrong < kEntries; ++wrong) {
        for (int i = 0; i < kEntries; ++i) {
            io_uring_sqe *const entry = uring.next();
            ::io_uring_prep_nop(entry);
            entry->personality = i == wrong ? kNobodys : 0;
        }
        io_uring_cqe *done = nullptr;
        const int taken = hand_over(uring, argv[1], &done);
        std::printf("handed over: %d, there is one: %d, ", taken, done != nullptr);
        std::printf("they are: %u, left: %u\n", ::io_uring_cq_ready(&uring.its), ::io_uring_sq_space_left(&uring.its));
        std::printf("the rest: %d\n", ::io_uring_submit(&uring.its));
        for (int i = wrong == 0 ? 0 : 1; i < kEntries; ++i) // one is there at the next call
            uring.result();
    }
    talk(ends, 50);
}
