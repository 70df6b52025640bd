// SPDX-License-Identifier: BSD-2-Clause
// One side of the stepped connection: sends and reads bytes that are a function of their position, and writes down how
// far it came.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>

#include "fabtests/steps/programs/board.hpp"

namespace step {

[[noreturn]] [[gnu::format(printf, 2, 3)]] void fail(Board *board, const char *format, ...);

void wait_for(const std::atomic<bool> &word);

struct Side {
    Board *board;
    Role role;
    int fd = -1;
    bool child = false; // or started by execve(): it isn't what is stepped

    Flow &out() const { return board->flows[role]; }
    Flow &in() const { return board->flows[1 - role]; }

    void connect();
    void accept();
    void talk() const; // round trips until both directions are offloaded, where they will be

    ssize_t send_some(std::size_t len, int flags) const; // up to 8 KiB; as send()
    bool send_all(std::size_t len) const;                // false: the connection has ended
    void fill(std::size_t most) const;                   // what goes without waiting
    ssize_t receive_some(std::size_t len) const;         // as recv(); anything but bytes is the direction's end
    void read_to_end() const;

    // Around the stretch: nothing of it where the other side is the victim.
    void begin_stretch() const;
    void end_stretch() const;
    bool is_victim() const { return board->victim == role; }
};

} // namespace step
