// SPDX-License-Identifier: BSD-2-Clause
// What the interception layer and the multiplexers know of a tracked TCP socket: lookup by descriptor, the calls on
// it, its readiness, and the list of those who want to hear of its events. How bytes travel is behind it (stream.hpp).
// All functions return what the libc call returns and set errno as the kernel does.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/base/lock.hpp"

namespace vma::sock {

class Socket;
class Stream;

// ---- descriptor table (fd_table.cpp) ----------------------------------------------------------------------------

inline constexpr int kMaxTracked = 1 << 20; // descriptors above are left to the kernel

extern Socket *g_table[kMaxTracked]; // by table_slot() only: a million atomics are no constant for clang

inline std::atomic_ref<Socket *> table_slot(int fd)
{
    return std::atomic_ref<Socket *>(g_table[fd]);
}

// The tracked socket behind `fd`, or nullptr: one load. Sockets are type-stable: a pointer stays readable after close.
inline Socket *lookup(int fd)
{
    if (static_cast<unsigned>(fd) >= static_cast<unsigned>(kMaxTracked))
        return nullptr;
    return table_slot(fd).load(std::memory_order_acquire);
}

// Threads are about to have tables of their own: the number is the kernel's from now on. The socket stays for calls
// that are open on it, and nobody gives it back. False: bytes of it are left to read, and it is found by its file from
// now on, as is_behind() knows it.
bool leave_number(int fd);
void note_file(int fd);                  // where bytes are left to read
bool is_behind(const Socket &s, int fd); // in the table of the calling thread
// The number was taken out of the table, for a close() or dup2() that the kernel has not seen yet, and the socket goes
// on by another descriptor.
bool still_leads_to(const Socket &s, int fd);

enum class Role : std::uint8_t { kUnknown, kConnector, kAcceptor };

// Life of a descriptor. `forget` is called before the kernel's close (or when a number is reused): it drops this
// descriptor's reference; the last one ends the stream (END, offer removed) so that the kernel's FIN comes after.
void track_new(int fd, bool nonblocking);                    // after socket(AF_INET/6, SOCK_STREAM)
void track_datagram(int fd, int family, bool nonblocking);   // after socket(AF_INET/6, SOCK_DGRAM)
void track_accepted(int listener, int fd, bool nonblocking); // after accept/accept4
void track_dup(int old_fd, int new_fd);                      // after dup/dup2/dup3/F_DUPFD*
void forget(int fd);
// A connect() was made on it, whatever it returned: the socket is a connector. `to` is nullptr if the kernel refused
// it.
void connecting(Socket &s, int fd, const sockaddr *to, socklen_t length);
void disconnected(Socket &s); // by connect() to no address: what is unread, and what was not told yet, goes with it
void listening(Socket &s, int fd); // after listen()
int connect_datagram(Socket &s, int fd, const sockaddr *address, socklen_t length);
bool is_datagram(const Socket &s);

// ---- calls on a tracked socket (send.cpp, receive.cpp, control.cpp) ----------------------------------------------

ssize_t receive(Socket &s, int fd, void *buf, std::size_t len, int flags);
ssize_t receive_from(Socket &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from, socklen_t *from_len);
ssize_t receive_msg(Socket &s, int fd, msghdr *msg, int flags);
ssize_t send(Socket &s, int fd, const void *buf, std::size_t len, int flags);
ssize_t send_to(Socket &s, int fd, const void *buf, std::size_t len, int flags, const sockaddr *to, socklen_t to_len);
ssize_t send_msg(Socket &s, int fd, const msghdr *msg, int flags);
// recvmmsg() and sendmmsg()
int receive_messages(Socket &s, int fd, mmsghdr *messages, unsigned count, int flags, timespec *timeout);
int send_messages(Socket &s, int fd, mmsghdr *messages, unsigned count, int flags);
ssize_t send_file(Socket &s, int fd, int in_fd, off64_t *offset, std::size_t count);
ssize_t splice_from(Socket &s, int fd, int pipe_fd, off64_t *out_offset, std::size_t len, unsigned flags);
ssize_t splice_to(Socket &s, int fd, int pipe_fd, off64_t *in_offset, std::size_t len, unsigned flags);
int shut_down(Socket &s, int fd, int how);
int set_option(Socket &s, int fd, int level, int name, const void *value, socklen_t len);
int get_option(Socket &s, int fd, int level, int name, void *value, socklen_t *len);
int bytes_readable(Socket &s, int fd, int *count);                      // FIONREAD / SIOCINQ
int at_mark(Socket &s, int fd, int *mark);                              // SIOCATMARK, sockatmark()
int bytes_unsent(Socket &s, int fd, unsigned long request, int *count); // SIOCOUTQ, SIOCOUTQNSD
void set_nonblocking(Socket &s, bool on); // after F_SETFL / FIONBIO succeeded in the kernel

// Gives the socket to the kernel for good (fdopen, splice that can't be emulated, O_ASYNC, TCP_ULP, ...).
// `reason` is a string literal: it appears in the debug log line of this connection.
// `heir`: who reads what the peer has sent and the program has not read.
enum class Heir : std::uint8_t {
    kLibrary, // this process by its calls, or others that have the library: what is here stays here
    kAnybody, // the kernel itself, or a program that may know its bytes only: the peer is to send them again
};
void pin_to_kernel(Socket &s, const char *reason, Heir heir = Heir::kAnybody);
void pin_all(const char *reason); // no lock held
// The same for now: it comes again when mux::may_follow() says so.
void give_to_kernel(Socket &s, const char *reason);
inline constexpr const char *kSetIsShared = "another process holds an epoll set of it too";

// ---- processes (process.cpp) ---------------------------------------------------------------------------------------

void return_before_fork();        // what needs memory; g_forks.gate held
void return_all_shared_by_fork(); // pthread_atfork prepare handler; locks the library
void after_fork_in_parent();
void after_fork_in_child();
void forked(pid_t child);                     // in the parent, what fork() gave
void return_surviving_exec();                 // before exec*: those without FD_CLOEXEC
void exec_failed();                           // after it: the process goes on
void return_for_spawn(bool has_file_actions); // before posix_spawn, vfork, clone(CLONE_VFORK)
// A process that will run another program gets it under another number, whatever its close-on-exec flag says: it moves
// bytes beside this process, nobody knows for how long. Also in a child of vfork().
void given_to_child(Socket &s);
// Before a thread gets a table of descriptors of its own, by `how`: all goes back to the kernel for good. What is known
// of numbers is for the caller to drop.
void tables_part(const char *how);
void process_ends();                   // by exit(): names of it go
void process_ends_at_once();           // by _exit(): what ports carry goes back to the kernel, which ends it
void return_passed(const msghdr *msg); // before sendmsg on an AF_UNIX socket with SCM_RIGHTS

// ---- readiness ------------------------------------------------------------------------------------------------------

// Among the events of notify(): whatever its sender did before is here already, by the kernel too
// (libc/kernel_acts.hpp). Where that is not so, there is a notify() of no events before anything can be seen, of a
// socket that tells.
inline constexpr std::uint32_t kNothingBefore = 1U << 26; // no event has it
// Likewise: the peer has ended what it sends by its endpoint, and brings nothing with that. The kernel's event comes
// with its FIN, or its next byte: edge-triggered, this is none unless the end is known already.
inline constexpr std::uint32_t kBeforeEnd = 1U << 25; // no event has it
// Likewise: the kernel has something for the socket, and tells the epoll sets itself; their next looks are to ask it.
// It is no event of its own, which would be told twice.
inline constexpr std::uint32_t kKernelTells = 1U << 24; // no event has it
bool tells_what_came_before(const Socket &s);

// Whoever wants to hear of an offloaded socket's events: an epoll entry, or a thread about to sleep. Lives in its
// owner. notify() runs on whichever thread polls the engine, with the socket's watcher lock held: short, no blocking,
// no call back into the socket. `events` are POLL* bits that *may* have become true; the owner asks ready_events().
struct Watcher {
    void (*notify)(Watcher *self, std::uint32_t events) = nullptr;
    Watcher *next = nullptr;
    Watcher *prev = nullptr;
    Socket *socket = nullptr; // set by watch(), cleared by unwatch(), with the list's lock held:
    bool in_set = false;      // or by mux::watch_set() and unwatch_set(). A jump out of a handler finds both right
    bool keeps_time = false;  // its owner knows himself when a send that the rate limit holds is due
};
void watch(Socket &s, Watcher &w);
void unwatch(Watcher &w); // after return no notify() of w is running or will run

// True once an endpoint is connected: waits must then look at both paths (doc/stream-protocol.md).
bool is_offloaded(const Socket &s);
bool tells_of_itself(const Socket &s); // offloaded, or it owes an error that the kernel doesn't know any more

// POLL* bits of `interest` (and POLLHUP/POLLERR/POLLNVAL always) that are true now, as poll() would give for this
// socket; right for kernel-only sockets too. May make system calls when a direction is on the kernel; polls no engine.
std::uint32_t ready_events(Socket &s, int fd, std::uint32_t interest);

// What is left of `events`, which ready_events() gave, once the program's receive callback was asked about what can be
// read. It runs in here: no lock is held.
std::uint32_t screen_events(Socket &s, int fd, std::uint32_t events);

// As ready_events(), without any system call: what the endpoint side alone says; used in spinning loops.
std::uint32_t ready_events_fast(const Socket &s, std::uint32_t interest);

// A direction of `interest` is on the kernel, which only a system call can ask.
bool waits_for_kernel(const Socket &s, std::uint32_t interest);

// The multiplexer's own field in each socket: its epoll entries. Empty when a socket is made.
struct MuxHook {
    Mutex lock;
    std::atomic<std::uint32_t> poller{0}; // the thread that has it in a poll() beside others; 0: none
    std::atomic<bool> shared{false};      // when it was looked at last, another process could have an epoll set of it
    void *entries = nullptr;
};
MuxHook &mux_hook(Socket &s);

// Who tells of a socket's events.
enum class Carrier : std::uint8_t {
    kOurs,   // we do, or may do soon
    kStream, // the kernel does, of a stream; wait_in_kernel() keeps it so
    kKernel, // the kernel does for good
};
Carrier carrier_of(const Socket &s);

// Calls `wait`, the kernel's poll() or select(), with the certainty that no endpoint of `s` starts before it returns:
// READY waits for it, and the peer for READY. False: it has one, and nothing was called. May be left by a jump or by
// cancellation.
bool wait_in_kernel(Socket &s, int (*wait)(const void *call), const void *call, int &result);

// A multiplexer saw kernel events on the descriptor of an offloaded socket: the next ready_events() looks closer.
void note_kernel_events(Socket &s, std::uint32_t events);

} // namespace vma::sock
