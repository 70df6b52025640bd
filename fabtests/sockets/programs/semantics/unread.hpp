// SPDX-License-Identifier: BSD-2-Clause
// A text that is there and unread when a second process gets the socket.
#pragma once

#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace fabtest {

inline constexpr const char *kText = "first half second half";
inline constexpr int kBytes = 22;
inline constexpr int kHalf = 11;

void reap(const Side &me, pid_t child);

// The next kHalf bytes, as far as they are there.
void show_half(const Side &me, const char *who, int fd);

// The server's part: the text, its span's end, and perhaps more by the kernel.
void send_and_fork(Side &me, int fd, bool more);

void await_text(Side &me, int fd);

// The client has nothing more to do: the server sends more, if it does.
void go_on(Side &me);

} // namespace fabtest
