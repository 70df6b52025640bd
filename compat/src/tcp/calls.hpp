// SPDX-License-Identifier: BSD-2-Clause
// The entries of the stream protocol's table (stream_protocol.cpp) by the files that have them, and what its calls use
// of the shared ring without the way by the transport's table.
#pragma once

#include "compat/src/offload/stream.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/transport/ring.hpp"

namespace vma::sock::tcp {

// send.cpp
ssize_t send(Socket &socket, int fd, const void *buf, std::size_t len, int flags);
ssize_t send_to(Stream &s, int fd, const void *buf, std::size_t len, int flags, const sockaddr *to, socklen_t to_len);
ssize_t send_msg(Socket &socket, int fd, const msghdr *msg, int flags);
ssize_t send_file(Stream &s, int fd, int in_fd, off64_t *offset, std::size_t count);
int bytes_unsent(Stream &s, int fd, unsigned long request, int *count);

// receive.cpp
ssize_t receive(Socket &socket, int fd, void *buf, std::size_t len, int flags);
ssize_t receive_from(Stream &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from, socklen_t *from_len);
ssize_t receive_msg(Socket &socket, int fd, msghdr *msg, int flags);
int bytes_readable(Stream &s, int fd, int *count);
int at_mark(Stream &s, int fd, int *mark);

// control.cpp
int shut_down(Stream &s, int fd, int how);
bool admits_option(Stream &s, int level, int name);
int set_option(Stream &s, int fd, int level, int name, const void *value, socklen_t len);
int get_option(Stream &s, int fd, int level, int name, void *value, socklen_t *len);

// most.cpp: send_msg() and receive_msg() of no more than the kernel moves.
ssize_t send_message(Socket &socket, int fd, const msghdr *msg, int flags);
ssize_t receive_message(Socket &socket, int fd, msghdr *msg, int flags);

// readiness.cpp
std::uint32_t ready_events(Socket &socket, int fd, std::uint32_t interest);
std::uint32_t ready_events_fast(const Socket &socket, std::uint32_t interest);
void note_kernel_events(Stream &s, std::uint32_t events);
bool waits_for_kernel(const Socket &socket, std::uint32_t interest);

void finish_leaving(Stream &s, std::int64_t until_ns, Heir heir, Closing closing);

// life.cpp
void end(Stream &s, int fd);
bool has_to_explain(Stream &s);
const char *print_name(const Stream &s, char (&out)[kNameMax]);

} // namespace vma::sock::tcp
