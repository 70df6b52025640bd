// SPDX-License-Identifier: BSD-2-Clause
// SO_PEEK_OFF (socket(7)) of a socket that has unread bytes in front of the kernel's (shared_leftovers.hpp). Beside
// them stands, for all processes, how far the place is: of a stream as far as it lies in them, and the rest is the
// kernel's own option, whose peeks go on as they are; of datagrams all of it, and the kernel's option is set for each
// peek there. Only peeks pay for it.
#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace vma::sock {

class Socket;
struct SharedLeftovers;

// The program's setsockopt() and getsockopt(); the first is the kernel's but for SO_PEEK_OFF, of a socket that is on
// the kernel but for what is left to read. No lock held.
int set_in_kernel(Socket &s, int fd, int level, int name, const void *value, socklen_t len);
void correct_peek_offset(const Socket &s, void *value, socklen_t len); // of what the kernel has said

// The kernel's option. They keep errno.
int kernel_peek_offset(int fd); // negative: it is off
void set_kernel_peek_offset(int fd, int offset);
// The place beside the unread bytes.
void peek_goes_on(const SharedLeftovers &u, std::uint64_t count);
void peek_goes_back(const SharedLeftovers &u, std::uint64_t count); // what was read by a call that returned `count`

} // namespace vma::sock
