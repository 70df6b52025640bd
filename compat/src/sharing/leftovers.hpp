// SPDX-License-Identifier: BSD-2-Clause
// What the program has not read of a span that the peer had ended when the endpoint is closed: RETURN can't bring it
// back. It is in a copy of the ring first, and in memory that all holders of the socket share (shared_leftovers.hpp)
// once there are others. The socket stays offloaded, without an endpoint, until it is read.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>

namespace vma::sock {

class Socket;
class Stream;
struct SharedLeftovers;

bool keep_leftovers(Stream &s); // rx_lock and poll lock held. False: there is nothing, or no memory
void drop_leftovers(Stream &s); // rx_lock held
void drop_shared(Socket &s);    // only what all share; rx_lock held

// Before another process holds the socket, of a child or, `handed`, of one that may not have the library. No lock held
// but the offload lock's.
void share_leftovers(Socket &s, bool handed);

void set_shared(Socket &s, SharedLeftovers *u); // rx_lock held, or nobody else knows the socket

// The part that all share, of a socket whose unread is not nullptr.
std::size_t shared_left(const Socket &s); // bytes; no lock needed
// Bytes, the negative errno that stands behind them, or 0: none is left. rx_lock held.
ssize_t consume_shared(Socket &s, int fd, msghdr *msg, std::size_t skip, int flags);
bool holds_leftovers(const Socket &s); // of either kind; rx_lock held
bool owes_error(const Socket &s); // that the program has not been told, of its own or of all holders; no lock needed
int take_owed_error(Socket &s);   // SO_ERROR, as far as the kernel doesn't know it; no lock held
bool may_reset(const Socket &s);  // nobody else is there to read what is left
void end_leftovers(Socket &s);    // the process ends: what nobody else has goes

// A descriptor that another process has left or sent to this one. True: there are bytes to read before the kernel's,
// and it is tracked now. `handed`: the other one has counted on us.
bool adopt(int fd, bool handed);
// Those that this program was started with.
void adopt_inherited(void (*adopted)(int fd));
// Those in a message that a UNIX socket has received.
void adopt_passed(const msghdr &msg, bool peeked, void (*adopted)(int fd));

namespace tcp {
void share_unread(Stream &s);                                  // Protocol::share_unread
Socket *begin_foreign(int fd, int family, SharedLeftovers *u); // Protocol::begin_foreign
} // namespace tcp

} // namespace vma::sock
