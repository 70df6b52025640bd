// SPDX-License-Identifier: BSD-2-Clause
#include "local/cm/retry.hpp"

#include <cerrno>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utility>

#include "core/kernel.hpp"
#include "local/cm/manager.hpp"
#include "local/cm/pep.hpp"

namespace vma::local {
namespace {

constexpr long kPauseNs = 2'000'000;

} // namespace

Retries::~Retries()
{
    if (timer_)
        manager_.unwatch(timer_.get());
}

int Retries::open() noexcept
{
    timer_ = core::make_fd([] { return core::kernel::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK); });
    return timer_ && manager_.watch(*this, timer_.get(), EPOLLIN, true) ? 0 : -errno;
}

void Retries::arm() noexcept
{
    const itimerspec once{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kPauseNs}};
    if (!armed_)
        armed_ = core::kernel::timerfd_settime(timer_.get(), 0, &once, nullptr) == 0;
}

void Retries::on_ready(std::uint32_t) noexcept
{
    std::uint64_t expirations = 0;
    [[maybe_unused]] const ssize_t length = core::kernel::read(timer_.get(), &expirations, sizeof(expirations));
    armed_ = false;
    // Each of them may be noted anew, or end and remove others.
    for (Listener *listener : std::exchange(listeners_, {}))
        listener->resume();
    for (Link *link : std::exchange(links_, {}))
        link->flush();
    const std::unordered_set<Connection *> again = connections_;
    for (Connection *connection : again) {
        if (connections_.erase(connection) > 0)
            manager_.retry_now(*connection);
    }
}

} // namespace vma::local
