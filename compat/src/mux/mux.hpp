// SPDX-License-Identifier: BSD-2-Clause
// select, poll and epoll over sets that mix accelerated sockets and anything else. The interception layer calls the
// first group, the socket layer the second. Kernel epoll descriptors stay real: each plain descriptor is registered in
// them as the program asked; only the entries of offloaded sockets are taken over (doc/multiplexing.md).
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

#include "compat/src/table/socket.hpp"

namespace vma::mux {

// ---- called by the interception layer; semantics of the libc functions ----------------------------------------------
// `timeout` nullptr: for ever. `mask` nullptr: leave the signal mask. Safe from any thread; poll() and select() also
// from a signal handler, as far as the sockets in them are.
int poll(pollfd *fds, nfds_t count, const timespec *timeout, const sigset_t *mask);

// `left`, if given, gets what remains of `timeout`, as Linux's select() returns it (never on EINVAL). The sets are
// arrays of unsigned long of `nfds` bits, whatever FD_SETSIZE is.
int select(int nfds, fd_set *in, fd_set *out, fd_set *err, const timespec *timeout, const sigset_t *mask,
           timespec *left);

int epoll_created(int epfd); // after a successful epoll_create*; returns epfd
int epoll_control(int epfd, int op, int fd, epoll_event *event);
int epoll_wait(int epfd, epoll_event *events, int max, const timespec *timeout, const sigset_t *mask);
int epoll_wait_ms(int epfd, epoll_event *events, int max, int milliseconds, const sigset_t *mask); // < 0: for ever

// The waits as the interception layer calls them: by a table, as calls on sockets go by that of their protocol, so that
// who traces them changes the table, and they cost no branch for it.
struct WaitCalls {
    decltype(&mux::poll) poll;
    decltype(&mux::select) select;
    decltype(&mux::epoll_wait) epoll_wait;
    decltype(&mux::epoll_wait_ms) epoll_wait_ms;
};
extern WaitCalls g_wait_calls;

bool is_epoll(int fd);   // a tracked epoll descriptor
bool has_news(int epfd); // of accelerated sockets in it: a look that doesn't wait would find something. Cheap
void epoll_dup(int old_fd, int new_fd);
void epoll_closed(int fd); // before the kernel's close of an epoll descriptor, or when its number is reused

// All sets are the kernel's alone from now on, while the program keeps them: their sockets are on the kernel for good,
// and are registered there as asked. False: they stay ours, as a socket has news that the kernel does not know of.
bool leave_sets();

// The same of one number, before threads have tables of their own: what it was is not known from here on, whoever asks.
// Threads that wait in the set go on by the kernel's.
void let_go_of_set(int epfd);

// ---- called by the socket layer -------------------------------------------------------------------------------------
// With no watcher lock held. What sock::is_offloaded() says has changed before the call.

// Whether its entries could be taken over: it is in no set that another process may have, which would not be told of
// its events then. Looks at these processes, and reads what they have changed: system calls. Offload lock held.
bool may_follow(sock::Socket &s);

// Takes over its entries in every set and wakes whoever sleeps in poll() or in these sets. False: an entry can't be
// taken over (no descriptor or memory left, or as may_follow() says): the socket must go back to the kernel.
bool became_offloaded(sock::Socket &s);

// Gives its entries back to the kernel as the program asked for them.
void became_kernel_only(sock::Socket &s);

// Some set tells edges of it: with the kernel that would begin anew, and tell what is true still once more.
bool tells_edges(sock::Socket &s);

// Threads that wait each in a set of its own, or in poll() each for several sockets of its own, would all wake for what
// comes on a ring that they share. Whose the ring of the socket is to be: that of the set that it is in, else of the
// thread that had it in a poll() last, by a number that stays as long as the set or the thread; 0: the main ring, which
// the first set and the first such thread have, and all that neither is said of.
std::uint64_t ring_owner(sock::Socket &s);

// Before the kernel's close of one descriptor of it. `last`: this process has no other one. True (not when `last`): the
// kernel keeps a registration that was made under this number, and it can't be changed any more: the socket must stay
// on the kernel from now on.
bool descriptor_closed(sock::Socket &s, int fd, bool last);

// A descriptor is about to be passed to a process that is not of the family: if it is a set's, that is shared for good.
void set_passed(int fd);
void before_exec(); // likewise all sets that the next program has; no lock held
void exec_failed(); // there is none: these are our own again

// fork(): `prepare` after all sockets that the child keeps have become kernel-only. The child keeps the kernel's sets.
// True: there are such. Offload lock held.
bool fork_prepare();
void fork_parent();
void fork_child();

} // namespace vma::mux
