// SPDX-License-Identifier: BSD-2-Clause
// Stands in for the sockets (compat/src/table) in tests of the multiplexers: tracked sockets that are offloaded and
// returned by command, an engine that is a queue of events, and the sleepers' list. Behind each socket is a real
// AF_UNIX pair, so that what it does while kernel-only is the kernel's own doing.
#pragma once

#include <cstdint>

namespace vma::fake {

extern bool g_quiet_kernel;      // the kernel has never news of offloaded sockets: looking at them takes no system call
extern bool g_keeps_unread;      // what a socket has unread doesn't go back to the kernel, nor does the socket
extern void (*g_after_look)();   // called once, between a socket's being found not ready and the answer
extern void (*g_after_take)();   // likewise, by who polls, between taking an event off the queue and telling of it
extern void (*g_before_drain)(); // likewise, by who drains the queue, before waiting for who polls
extern void (*g_before_return)(); // likewise, where the multiplexer gives a socket back to the kernel
extern void (*g_after_asking)();  // likewise, between a socket's being found kernel-only and the answer

int open_socket(); // a tracked socket; returns its descriptor
int dup_socket(int fd);
void close_socket(int fd);
void close_peer(int fd);             // the peer's end of the kernel connection
void finish_peer(int fd);            // the peer shuts its sending side down, in the kernel
void deliver(int fd);                // a byte from the peer, by the path the socket is on
void deliver_behind_nothing(int fd); // who sends it has done nothing by the kernel meanwhile; of an offloaded socket
void deliver_at_take(int fd);        // a byte that nobody sees before it is taken off the queue; of an offloaded socket
bool consume(int fd);                // reads one; false: there was none
void set_full(int fd, bool full);    // no room to send by the endpoint
void post(int fd, std::uint32_t events); // an event in the engine's queue, whatever it is about

bool offload(int fd);   // kernel-only to offloaded
void give_up(int fd);   // offloaded to kernel-only; unread bytes come again by the kernel
bool is_pinned(int fd); // the multiplexer asked for it

int open_set(); // a tracked epoll set
int dup_set(int epfd);
void close_set(int epfd);

void count_signals(int number); // installs a handler that counts as the library's trampoline does

} // namespace vma::fake
