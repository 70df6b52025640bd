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
    int fd = -1, listener = -1;
    bool connected = false; // connect() or accept() has returned
    bool child = false;     // or started by execve(): it isn't what is stepped

    Flow &out() const { return board->flows[role]; }
    Flow &in() const { return board->flows[1 - role]; }

    void connect(); // also where an attempt was broken off
    void accept();  // the same
    void listen();
    void talk() const; // round trips until both directions are offloaded, where they will be

    ssize_t send_some(std::size_t len, int flags) const; // up to 8 KiB; as send()
    bool send_all(std::size_t len) const;                // false: the connection has ended
    void fill(std::size_t most) const;                   // what goes without waiting
    bool receive_some(std::size_t len) const;            // false: the direction has ended
    void read_to_end() const;
    void read_unchecked() const; // the same, where a call that was left may have taken some bytes

    // What a handler does, in the midst of any of these.
    void send_aside() const;
    void receive_aside() const;
    bool is_sending() const;   // a send was begun, and hasn't come back
    bool is_receiving() const; // the same of a receive, or what it gave isn't written down yet

    // Around the stretch: nothing of it where the other side is the victim.
    void begin_stretch() const;
    void end_stretch() const;
    bool is_victim() const { return board->victim == role; }
};

} // namespace step
