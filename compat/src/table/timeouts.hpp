// SPDX-License-Identifier: BSD-2-Clause
// SO_RCVTIMEO and SO_SNDTIMEO, by either of the two numbers that Linux has for each.
#pragma once

#include <sys/socket.h>

namespace vma::sock {

class Socket;

void note_timeout(Socket &s, int level, int name, const void *value, socklen_t len); // the kernel has taken the option
void inherit_timeouts(Socket &s, const Socket &listener);
// Of a socket that another process has set up. The kernel does not tell a negative one from none.
void read_timeouts(Socket &s, int fd);
void read_inq(Socket &s, int fd); // likewise, TCP_INQ of a stream

} // namespace vma::sock
