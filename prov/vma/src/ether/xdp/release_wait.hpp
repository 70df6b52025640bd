// SPDX-License-Identifier: BSD-2-Clause
// Waits for the kernel to let go of an interface whose last process has ended. It does so after that end: each AF_XDP
// socket takes a grace period of RCU, one after the other, and the queue's pool goes later still.
#pragma once

#include <cstdint>

namespace vma::ether {

class ReleaseWait
{
public:
    explicit ReleaseWait(unsigned interface) noexcept : interface_(interface) {}

    // Sleeps for a moment before the next try; false when it has been long enough. An interface with an XDP program has
    // a process that lives, in all likelihood, and is given up soon.
    [[nodiscard]] bool next() noexcept;

private:
    unsigned interface_;
    std::uint64_t begun_ = 0; // CLOCK_MONOTONIC in ns
    std::uint64_t pause_ = 0; // ns
};

} // namespace vma::ether
