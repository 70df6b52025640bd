// SPDX-License-Identifier: BSD-2-Clause
#include "contrib/lab/sim/real_wire.hpp"

#include <array>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace vma::sim {
namespace {

constexpr int kBurst = 64; // frames of one side before it is the other's turn

} // namespace

RealWire::RealWire(std::mutex &mutex, int wire, int host, Take take)
    : mutex_(mutex), wire_(wire), host_(host), take_(std::move(take)), stop_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this] { loop(); })
{
}

RealWire::~RealWire()
{
    const std::uint64_t one = 1;
    if (::write(stop_, &one, sizeof one) == sizeof one)
        thread_.join();
    else
        thread_.detach();
    ::close(stop_);
}

void RealWire::send(std::span<const std::uint8_t> frame) const
{
    static_cast<void>(::send(wire_, frame.data(), frame.size(), MSG_DONTWAIT));
}

void RealWire::read(int from)
{
    std::array<std::uint8_t, 65536> buffer;
    for (int i = 0; i < kBurst; ++i) {
        const ssize_t length = ::recv(from, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (length <= 0)
            return;
        const std::span frame(buffer.data(), static_cast<std::size_t>(length));
        if (from == host_) {
            send(frame);
            continue;
        }
        bool taken = false;
        {
            const std::lock_guard guard(mutex_);
            taken = take_(frame);
        }
        if (!taken && host_ >= 0)
            static_cast<void>(::send(host_, frame.data(), frame.size(), MSG_DONTWAIT));
    }
}

void RealWire::loop()
{
    for (;;) {
        pollfd wanted[] = {{stop_, POLLIN, 0}, {wire_, POLLIN, 0}, {host_, POLLIN, 0}};
        if (::poll(wanted, std::size(wanted), -1) < 0)
            continue;
        if (wanted[0].revents != 0)
            return;
        if (wanted[1].revents != 0)
            read(wire_);
        if (wanted[2].revents != 0)
            read(host_);
    }
}

} // namespace vma::sim
