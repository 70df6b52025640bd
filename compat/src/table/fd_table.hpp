// SPDX-License-Identifier: BSD-2-Clause
// Making tracked sockets; for the protocols.
#pragma once

#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

// A socket for a descriptor, whatever was tracked under its number before. nullptr: no memory, or the number is too
// large.
Socket *track(int fd, Role role, bool nonblocking, int protocol = IPPROTO_TCP, int family = AF_INET);

} // namespace vma::sock
