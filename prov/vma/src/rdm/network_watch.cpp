// SPDX-License-Identifier: BSD-2-Clause
#include "rdm/network_watch.hpp"

#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"

namespace vma::rdm {

namespace {

constexpr int kBacklog =
    16; // connections that nobody takes; where there are that many, who asks waits, and takes us for alive

core::UniqueFd stream_socket(const ofi::Address &address) noexcept
{
    return core::make_fd(
        [&] { return core::kernel::socket(address.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

} // namespace

int open_presence(const ofi::Address &address, core::UniqueFd &socket) noexcept
{
    socket = stream_socket(address);
    // What has come to an end on this port lately is in nobody's way.
    const int on = 1;
    if (!socket || core::kernel::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        core::kernel::bind(socket.get(), &address.sa, static_cast<socklen_t>(address.size())) != 0 ||
        core::kernel::listen(socket.get(), kBacklog) != 0) {
        const int error = -errno;
        socket.reset();
        return error;
    }
    return 0;
}

bool Probe::is_there(const ofi::Address &address, std::uint64_t now) noexcept
{
    if (!socket_) {
        if (now - asked_ < kSilence)
            return true;
        asked_ = now;
        socket_ = stream_socket(address);
        if (!socket_)
            return true; // not known
        if (core::kernel::connect(socket_.get(), &address.sa, static_cast<socklen_t>(address.size())) != 0 &&
            errno != EINPROGRESS) {
            socket_.reset();
            return errno != ECONNREFUSED;
        }
    }
    pollfd look{socket_.get(), POLLOUT, 0};
    if (core::kernel::poll(&look, 1, 0) <= 0)
        return true;
    int error = 0;
    socklen_t length = sizeof error;
    static_cast<void>(core::kernel::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length));
    socket_.reset();
    return error == 0 || error == EAGAIN;
}

int Alarm::open() noexcept
{
    timer_ = core::make_fd([] { return core::kernel::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK); });
    return timer_ ? 0 : -errno;
}

void Alarm::start(std::uint64_t after) noexcept
{
    if (started_)
        return;
    itimerspec when{};
    when.it_value.tv_sec = static_cast<time_t>(after / 1'000'000'000);
    when.it_value.tv_nsec = static_cast<long>(after % 1'000'000'000);
    started_ = core::kernel::timerfd_settime(timer_.get(), 0, &when, nullptr) == 0;
}

bool Alarm::stop() noexcept
{
    if (!started_)
        return false;
    started_ = false;
    std::uint64_t times = 0;
    const bool gone_off = core::kernel::read(timer_.get(), &times, sizeof times) == sizeof times;
    const itimerspec never{};
    static_cast<void>(core::kernel::timerfd_settime(timer_.get(), 0, &never, nullptr));
    return gone_off;
}

} // namespace vma::rdm
