// SPDX-License-Identifier: BSD-2-Clause
// A library whose constructor waits for a thread that hands over an entry: the loader has its lock for as long.
#include <cstdlib>
#include <thread>

#include "fabtests/posix/programs/liburing/plugin.hpp"

[[gnu::constructor]] static void begin()
{
    const char *const at = std::getenv(kRing);
    if (at == nullptr)
        std::abort();
    auto *const uring = reinterpret_cast<io_uring *>(std::strtoull(at, nullptr, 16));
    std::thread([uring] {
        io_uring_cqe *done = nullptr;
        if (::io_uring_submit_and_wait_timeout(uring, &done, 1, nullptr, nullptr) != 1 || done == nullptr)
            std::abort();
    }).join();
}
