// SPDX-License-Identifier: BSD-2-Clause
// The forms in which a soak's processes send, receive and wait: which one, chance says.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/pattern.hpp"

namespace soak {

inline const int kPatience = patience::milliseconds(); // until a wait for what has to come has failed

// 127.0.0.1 (family 0) or ::1 (1).
sockaddr_storage loopback(unsigned family, std::uint16_t port, socklen_t *len);

// As recv() and send(). `wait`: the call may wait, if the socket does. `call`: what was called. `behind`: the error
// that came behind the bytes that were sent, and is told but once; 0: none.
ssize_t receive_form(fabtest::Random &random, int fd, char *bytes, std::size_t len, bool wait, const char **call);
ssize_t send_form(fabtest::Random &random, int fd, char *bytes, std::size_t len, bool wait, const char **call,
                  int *behind);

// Waits until poll, select or epoll say that there is something to read. False: they don't, for kPatience.
bool wait_readable(fabtest::Random &random, int fd, const char **call);

} // namespace soak
