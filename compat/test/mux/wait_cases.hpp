// SPDX-License-Identifier: BSD-2-Clause
// What tests of poll() and select() wait for, how long, and in which ways.
#pragma once

#include "fabtests/unit.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "compat/src/config/params.hpp"
#include "compat/test/mux/fake_socket.hpp"
#include "fabtests/patience.hpp"

namespace vma::test {

inline constexpr timespec kNow = {0, 0};
inline constexpr timespec kBrief = {0, 200001};
inline const timespec kLong = {patience::seconds(), 0};

struct Socket {
    Socket() : fd(fake::open_socket()) { assert_true(fake::offload(fd)); }
    ~Socket() { fake::close_socket(fd); }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;
    const int fd;
};

struct Pipe {
    Pipe() { assert_int_equal(::pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0); }
    ~Pipe()
    {
        ::close(fds[0]);
        ::close(fds[1]);
    }
    Pipe(const Pipe &) = delete;
    Pipe &operator=(const Pipe &) = delete;
    int fds[2];
};

// Every way to wait: spin for ever, for a moment, not at all; with all shares of the kernel.
template <typename Test> void in_every_mode(Test test)
{
    for (const std::int64_t spin : {std::int64_t{-1}, std::int64_t{20}, std::int64_t{0}})
        for (const std::uint32_t ratio : {1U, 10U, 0U}) {
            config::g_params.select_poll = spin;
            config::g_params.select_poll_os_ratio = ratio;
            test();
        }
    config::g_params = config::Params{};
}

} // namespace vma::test
