// SPDX-License-Identifier: BSD-2-Clause
// Whether there is still somebody at an address of another host. ofi_rxm tries to connect for ever and never says that
// nobody listens there, so who waits asks the other host's kernel: a TCP connection to the same port, on which each
// endpoint listens for nothing else.
#pragma once

#include <cstdint>

#include "core/fd.hpp"
#include "ofi/address.hpp"

namespace vma::rdm {

inline constexpr std::uint64_t kSilence = 1'000'000'000; // ns after which who waits asks

// A listening socket that refuses nobody and answers nobody. 0, or a negative fi_errno: -FI_EADDRINUSE.
int open_presence(const ofi::Address &address, core::UniqueFd &socket) noexcept;

class Probe
{
public:
    // Asks, or looks for the answer; at most each kSilence. False: nobody is there.
    bool is_there(const ofi::Address &address, std::uint64_t now) noexcept;
    void reset() noexcept { socket_.reset(); }

private:
    core::UniqueFd socket_; // its connection is under way
    std::uint64_t asked_ = 0;
};

// Readable some time after start(), for who sleeps until something comes.
class Alarm
{
public:
    int open() noexcept; // 0 or a negative errno
    int fd() const noexcept { return timer_.get(); }
    void start(std::uint64_t after) noexcept; // ns; unless it is started already
    // True: it had gone off, and is silent again.
    bool stop() noexcept;

private:
    core::UniqueFd timer_;
    bool started_ = false;
};

} // namespace vma::rdm
