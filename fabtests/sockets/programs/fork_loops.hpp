// SPDX-License-Identifier: BSD-2-Clause
// Forks again and again while connections are being accelerated, and while they are.
#pragma once

#include <unistd.h>

#include <array>

#include "fabtests/sockets/programs/peer.hpp"

namespace fabtest {

using ForkOnce = void (*)(int number); // forks, and waits for the child

// While connections are accelerated: all go back to the kernel.
inline void fork_with_some(Peer &me, ForkOnce fork_once, int number)
{
    std::array<int, 4> fds = {};
    for (int &fd : fds)
        me.offload(fd = me.connect_plain());
    fork_once(number);
    for (const int fd : fds) {
        send_all(fd, &number, sizeof number);
        receive_all(fd, &number, sizeof number);
        ::close(fd);
    }
}

// While one is about to be, or not yet.
inline void fork_after(Peer &me, ForkOnce fork_once, int turns, int number)
{
    const int fd = me.connect_plain();
    for (int turn = 0; turn < turns; ++turn) {
        send_all(fd, &number, sizeof number);
        receive_all(fd, &number, sizeof number);
    }
    fork_once(number);
    me.step();
    ::close(fd);
}

inline void fork_again_and_again(Peer &me, ForkOnce fork_once)
{
    constexpr int kForks = 200;
    constexpr int kForksWhenAccelerated = 8;
    me.open_listener();
    for (int i = 0; i < kForks; ++i)
        fork_after(me, fork_once, 4 + i % 16, i); // more bytes than those after which it is accelerated, or less
    for (int i = 0; i < kForksWhenAccelerated; ++i)
        fork_with_some(me, fork_once, i);
    me.offload(me.connect_plain()); // still
}

} // namespace fabtest
