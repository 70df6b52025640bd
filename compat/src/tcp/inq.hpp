// SPDX-License-Identifier: BSD-2-Clause
// TCP_INQ: each recvmsg() tells in a control message how many bytes are left to read. What an accelerated stream has
// is beside the kernel's socket, which says nothing of it.
#pragma once

#include "compat/src/table/stream.hpp"

namespace vma::sock::tcp {

bool is_inq(int level, int name);
void note_inq(Stream &s, const void *value); // an int: the kernel has taken it

} // namespace vma::sock::tcp

namespace vma::sock {

ssize_t receive_telling_inq(Stream &s, int fd, msghdr *msg, int flags);
ssize_t receive_past_inq(Socket &s, int fd, msghdr *msg, int flags); // receive.cpp: the same without it

} // namespace vma::sock
