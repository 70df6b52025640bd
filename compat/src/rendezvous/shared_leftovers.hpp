// SPDX-License-Identifier: BSD-2-Clause
// Bytes that came by an endpoint, are not read, and belong to every process that holds the socket: a forked child, the
// receiver of a descriptor, the program that exec() started. They lie in a System V segment that a symbolic link in the
// shared directory names after the socket (SO_COOKIE, SO_NETNS_COOKIE). The bytes never change; who moves the position
// past some of them has read them. So nothing is locked, and a process may be stopped or killed anywhere.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace vma::sock {

struct SharedLeftovers; // this process's view of it

// A segment for what is unread of `fd`, with room for `room` bytes; nobody else sees it yet. nullptr: no memory, or no
// shared directory; the log says so.
SharedLeftovers *make_unread(int fd, std::size_t room);
std::uint8_t *unread_room(SharedLeftovers &u); // where the bytes are put
// From now on others find it. `error`: the errno that stands behind them and that the kernel doesn't tell (any more), 0
// for none.
void publish_unread(SharedLeftovers &u, std::size_t filled, int error = 0);

// Of another process. nullptr: there is none for `fd`, or nothing is left in it, an error neither. `handed`: of an
// unread_handed() this is the end.
SharedLeftovers *find_unread(int fd, bool handed);
bool any_unread(); // some socket may have one; a system call

// A process of which we don't hear whether it looks for them gets the socket: they outlive this one.
void unread_handed(SharedLeftovers &u);

std::size_t unread_left(const SharedLeftovers &u);
bool ends_in_error(const SharedLeftovers &u);    // of which nobody has been told yet
int take_unread_error(const SharedLeftovers &u); // by the first who asks; 0 for all others
// Into the vectors from `skip` on; MSG_PEEK and MSG_TRUNC as recvmsg(). Bytes; 0: none is left. Any thread, any
// process.
std::size_t read_unread(const SharedLeftovers &u, const msghdr &msg, std::size_t skip, int flags);

// The same by records: what is from the position on, and the position moved by one of them. False: another one was
// faster.
const std::uint8_t *unread_at(const SharedLeftovers &u, std::uint64_t &position, std::size_t &left);
bool take_unread(const SharedLeftovers &u, std::uint64_t position, std::size_t count);

// SO_PEEK_OFF, as far as it stands in these bytes (peek_offset.hpp): how many of them, of a row of datagrams' payload,
// a peek skips.
std::uint64_t peek_place(const SharedLeftovers &u);
void set_peek_place(const SharedLeftovers &u, std::uint64_t bytes);
// A look from there on, as read_unread() with MSG_PEEK; the place moves. 0: it stands at the end.
std::size_t peek_on_unread(const SharedLeftovers &u, const msghdr &msg, std::size_t skip, int flags);

bool is_last_with(const SharedLeftovers &u);   // no other process has it, or will
void leave_unread(SharedLeftovers *u);         // nullptr: nothing. It is gone with the last one
void forsake_unread(const SharedLeftovers &u); // the process ends, and stays with it until then

} // namespace vma::sock
