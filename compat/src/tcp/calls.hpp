// SPDX-License-Identifier: BSD-2-Clause
// The entries of the stream protocol's table (stream_protocol.cpp) by the files that have them, and what its calls use
// of the shared ring without the way by the transport's table.
#pragma once

#include "compat/src/offload/stream.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/transport/ring.hpp"

namespace vma::sock::tcp {

// send.cpp
ssize_t send(Socket &s, int fd, const void *buf, std::size_t len, int flags);
ssize_t send_to(Socket &s, int fd, const void *buf, std::size_t len, int flags, const sockaddr *to, socklen_t to_len);
ssize_t send_msg(Socket &s, int fd, const msghdr *msg, int flags);
ssize_t send_file(Socket &s, int fd, int in_fd, off64_t *offset, std::size_t count);
int bytes_unsent(Socket &s, int fd, unsigned long request, int *count);

// receive.cpp
ssize_t receive(Socket &s, int fd, void *buf, std::size_t len, int flags);
ssize_t receive_from(Socket &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from, socklen_t *from_len);
ssize_t receive_msg(Socket &s, int fd, msghdr *msg, int flags);
int bytes_readable(Socket &s, int fd, int *count);
int at_mark(Socket &s, int fd, int *mark);

// control.cpp
void before_shutdown(Socket &s);
bool admits_option(Socket &s, int level, int name);
int set_option(Socket &s, int fd, int level, int name, const void *value, socklen_t len);
int get_option(Socket &s, int fd, int level, int name, void *value, socklen_t *len);

// readiness.cpp
std::uint32_t ready_events(Socket &s, int fd, std::uint32_t interest);
std::uint32_t ready_events_fast(const Socket &s, std::uint32_t interest);
bool waits_for_kernel(const Socket &s, std::uint32_t interest);

// life.cpp
void end(Socket &s, int fd);
bool has_to_explain(Socket &s);
const char *print_name(const Socket &s, char (&out)[kNameMax]);

} // namespace vma::sock::tcp
