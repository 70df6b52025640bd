// SPDX-License-Identifier: BSD-2-Clause
// The extra API (<mellanox/vma_extra.h>): what the socket layer and the interception layer see of it. doc/extra-api.md
#pragma once

#include <pthread.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "compat/src/table/socket.hpp"

namespace vma::extra {

struct State; // of one socket; state.hpp

// getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API): the table. True: that was asked, `result` and errno say what came of it.
bool answer(int fd, int level, int name, void *value, socklen_t *length, int &result);

// ---- options of a socket (options.cpp); as setsockopt() and getsockopt()
int set_option(sock::Socket &s, int fd, int name, const void *value, socklen_t length);
int get_option(sock::Socket &s, int name, void *value, socklen_t *length);

// SO_VMA_RING_ALLOC_LOGIC of the socket, if it was set for what is received; `logic` and `user_id` stay as they are if
// not.
void ask_ring_logic(const sock::Socket &s, std::int32_t &logic, std::uint32_t &user_id);

// ---- whether sockets of this thread are tracked: thread_offload(), else VMA_OFFLOADED_SOCKETS
bool offloads_here();

// ---- a send that sends nothing (VMA_SND_FLAGS_DUMMY)
inline constexpr int kDummy = 0x400;
// `s` nullptr: not tracked. `to`: of a datagram; nullptr: to whom it is connected
ssize_t send_nothing(sock::Socket *s, std::size_t length, const sockaddr *to = nullptr, socklen_t to_length = 0);
ssize_t send_nothing(sock::Socket *s, const msghdr &message);
int send_nothing_of_each(sock::Socket *s, mmsghdr *messages, unsigned count);
std::size_t length_of(const msghdr *message); // 0 where there is none

// ---- receive callbacks (callback.cpp), of sockets that are `screened`. No lock is held
bool any_callbacks();                                                          // cheap
ssize_t receive_screened(sock::Socket &s, int fd, msghdr &message, int flags); // as recvmsg()
bool screen(sock::Socket &s,
            int fd); // before a wait says that it can be read. False: what there was is none of the program's
bool has_ready(const sock::Socket &s);          // what a callback has let through waits to be read
std::size_t bytes_ready(const sock::Socket &s); // of it, as FIONREAD counts

// ---- SocketXtreme
using AcceptCall = int (*)(int listener, sockaddr *address, socklen_t *length, int flags);
void set_accept(AcceptCall call); // as accept4(), with all that the interception layer does
void follow(int fd);              // a number has become a tracked socket

// ---- life
void end(sock::Socket &s); // its last descriptor is closed: what was held of it is given back
void after_fork_in_child();

} // namespace vma::extra
