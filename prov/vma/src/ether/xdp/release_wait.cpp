// SPDX-License-Identifier: BSD-2-Clause
#include "ether/xdp/release_wait.hpp"

#include <algorithm>
#include <ctime>

#include "core/clock.hpp"
#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ether/xdp/bpf.hpp"

namespace vma::ether {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kLongestPause = 10 * kMillisecond;
constexpr std::uint64_t kWithProgram = 200 * kMillisecond;
constexpr std::uint64_t kWithout = 5000 * kMillisecond; // a machine with more work than processors: 8 sockets a queue

} // namespace

bool ReleaseWait::next() noexcept
{
    const std::uint64_t now = core::monotonic_ns();
    const bool has_program = bpf::has_xdp(interface_);
    if (begun_ == 0) {
        begun_ = now;
        VMA_INFO(domain, "interface %u is busy, %s: waiting for the kernel to let go of it", interface_,
                 has_program ? "with an XDP program" : "with no XDP program");
    }
    if (now - begun_ >= (has_program ? kWithProgram : kWithout))
        return false;
    pause_ = std::clamp(2 * pause_, kMillisecond, kLongestPause);
    const timespec pause{0, static_cast<long>(pause_)};
    core::kernel::nanosleep(&pause, nullptr);
    return true;
}

} // namespace vma::ether
