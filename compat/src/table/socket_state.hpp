// SPDX-License-Identifier: BSD-2-Clause
// What every tracked socket has, whatever its protocol: its descriptors, its mode, its locks, the calls that are open
// on it, who watches it. What a stream has besides is in stream.hpp, what a UDP socket has in udp/state.hpp.
#pragma once

#include <errno.h>

#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>

#include "compat/src/base/addresses.hpp"
#include "compat/src/base/arguments.hpp"
#include "compat/src/base/lock.hpp"
#include "compat/src/base/spin_habit.hpp"
#include "compat/src/stats/region.hpp"
#include "compat/src/table/due.hpp"
#include "compat/src/table/pacing_state.hpp"
#include "compat/src/table/protocol.hpp"
#include "compat/src/table/racy.hpp"
#include "compat/src/table/ring_claim.hpp"
#include "compat/src/table/socket.hpp"

namespace vma::extra {
struct State;
}

namespace vma::sock {

namespace udp {
struct State;
}

struct Device;
struct SharedLeftovers;

enum class Mode : std::uint8_t {
    kFree,       // in the pool
    kKernelOnly, // on the kernel, may be offloaded
    kKernel,     // on the kernel for good (pinned, not a candidate)
    kOffloaded,  // an endpoint is connected; waits look at both paths
};

// Why a call does not wait for what is not there yet.
enum NoWait : std::uint8_t {
    kNonblocking = 1,   // O_NONBLOCK
    kReceiveAtOnce = 2, // SO_RCVTIMEO is negative
    kSendAtOnce = 4,    // SO_SNDTIMEO likewise
};

// What a receive has to do besides.
enum ReceiveExtra : std::uint8_t {
    kScreened = 1, // the program has a receive callback, or had one
    kTellsInq = 2, // TCP_INQ
};

class Socket
{
public:
    // Who we are. Set while the socket is made, or under the table's lock.
    std::atomic<Mode> mode{Mode::kFree};
    std::atomic<const Protocol *> protocol{&kStreamProtocol};
    std::atomic<stats::Slot *> record{&stats::g_nobodys.sink}; // what it counts in (accounting.hpp)
    std::atomic<udp::State *> udp{nullptr};   // of a UDP socket: what is said of streams below is not for it
    Racy<bool> told = false;                  // the log has said whether it is accelerated
    std::atomic<bool> pinned{false};          // to the kernel for good
    std::atomic<std::uint8_t> no_wait{0};     // of NoWait
    std::atomic<std::uint32_t> generation{0}; // bumped when the last descriptor is closed
    std::atomic<std::uint32_t> descriptors{0};
    std::atomic<int> any_fd{-1};                      // one open descriptor of it
    std::atomic<std::int64_t> receive_timeout_us{-1}; // SO_RCVTIMEO, -1 for ever (timeouts.hpp)
    std::atomic<std::int64_t> send_timeout_us{-1};
    std::atomic<bool> receive_shut{false};
    Addresses addresses = {};                         // of a stream, once they were asked for
    std::atomic<const char *> kernel_reason{nullptr}; // a literal: why it is not accelerated, for the log

    // Calls inside the kernel while kernel-only; START and READY wait until they are out.
    std::atomic<std::uint32_t> blocked_receivers{0};
    std::atomic<std::uint32_t> blocked_polls{0};
    std::atomic<std::uint32_t> blocked_senders{0};
    std::atomic<std::uint32_t> waiters{0}; // calls that wait while offloaded
    std::atomic<int> kept_fd{-1};          // our own descriptor of a socket that was closed while calls were open
    std::atomic<std::uint32_t> operations{0};

    Mutex tx_lock;
    Mutex rx_lock;
    // What is left to read for all processes that hold the socket (sharing/leftovers.hpp), before the kernel's bytes.
    std::atomic<SharedLeftovers *> unread{nullptr}; // changed with rx_lock as well
    mutable Mutex unread_lock;                      // who looks at it without rx_lock
    Pacing pacing;

    DueFlag ready_due;                              // READY is to be sent when no bare receiver is left
    std::atomic<bool> kernel_news{false};           // the kernel has EOF, an error or data on the descriptor
    std::atomic<std::uint32_t> kernel_told{0};      // the helper thread will hear of the next of it (places.cpp)
    std::atomic<std::uint8_t> descriptor_sleeps{0}; // so many go by the descriptor
    std::atomic<std::uint8_t> news_of_kernel{0};    // without as many sleeps at the place between them
    std::atomic<int> pending_error{0};              // errno of a send of our own, which the program has not been told
    Racy<std::uint64_t> cookie = 0;                 // of our open offer, 0 none

    MuxHook mux;
    Mutex watch_lock;
    std::atomic<Watcher *> watchers{nullptr}; // changed with watch_lock

    udp::State *udp_memory = nullptr;            // stays with the Socket
    std::atomic<extra::State *> extra{nullptr};  // likewise
    std::atomic<std::uint8_t> receive_extras{0}; // of ReceiveExtra
    std::atomic<bool> counts_access{false};      // note_access() wants to know who receives
    Racy<std::uint8_t> ring = 0;                 // of the endpoint: its place
    Racy<RingMask> ring_bit = kMainRing;         // likewise, as a mask

    Device *device = nullptr; // of the endpoint or of the attempt's listener
    RingClaim ring_claim;

    mux::SpinHabit receive_spins; // of waits for it (wait.cpp)
    mux::SpinHabit send_spins;

    Socket *next_free = nullptr;
    std::uint32_t index = 0; // in the pool

    // SO_COOKIE, once threads have tables of their own and bytes of it are left to read here; 0: not asked for.
    std::atomic<std::uint64_t> file{0};
};

inline const Protocol &protocol(const Socket &s)
{
    return *s.protocol.load(std::memory_order_relaxed);
}

// rings_of() on the hot paths.
inline RingMask ring_of(const Socket &s)
{
    return s.ring_bit;
}

// is_offloaded() on the hot paths.
inline bool offloaded(const Socket &s)
{
    return s.mode.load(std::memory_order_acquire) == Mode::kOffloaded;
}

// The error that the program's next call ends with, once; 0 none. The kernel tells it only to the first who asks.
inline int take_error(Socket &s)
{
    if (s.pending_error.load(std::memory_order_relaxed) == 0) [[likely]]
        return 0;
    return s.pending_error.exchange(0, std::memory_order_relaxed);
}

// For the next call, which looks for it unless the socket is on the kernel for good; see mode_without_endpoint().
inline void owe_error(Socket &s, int error)
{
    s.pending_error.store(error, std::memory_order_relaxed);
    Mode kernel = Mode::kKernel;
    if (s.mode.load(std::memory_order_relaxed) == kernel) [[unlikely]] {
        s.pinned.store(true, std::memory_order_release);
        s.mode.compare_exchange_strong(kernel, Mode::kKernelOnly, std::memory_order_acq_rel);
    }
}

// Of a call that has sent or received something already: the kernel doesn't tell it again.
inline void keep_error(Socket &s, int error)
{
    if (error != EAGAIN && error != EINTR && error != EPIPE && error != EFAULT)
        owe_error(s, error);
}

// What a socket is that has no endpoint (any more). One that owes the program an error stays kernel-only: on the kernel
// for good nobody would look for it.
inline Mode mode_without_endpoint(const Socket &s)
{
    const bool owes = s.pending_error.load(std::memory_order_relaxed) != 0;
    return s.pinned.load(std::memory_order_relaxed) && !owes ? Mode::kKernel : Mode::kKernelOnly;
}

inline bool is_nonblocking(const Socket &s)
{
    return (s.no_wait.load(std::memory_order_relaxed) & kNonblocking) != 0;
}

inline void note_no_wait(Socket &s, NoWait why, bool on)
{
    if (on)
        s.no_wait.fetch_or(why, std::memory_order_relaxed);
    else
        s.no_wait.fetch_and(static_cast<std::uint8_t>(~why), std::memory_order_relaxed);
}

// Whether a receive with these flags waits for what is not there yet; whether a send waits for room.
inline bool may_wait_for_input(const Socket &s, int flags)
{
    return (flags & MSG_DONTWAIT) == 0 && (s.no_wait.load(std::memory_order_relaxed) & ~kSendAtOnce) == 0;
}
inline bool may_wait_for_room(const Socket &s, int flags)
{
    return (flags & MSG_DONTWAIT) == 0 && (s.no_wait.load(std::memory_order_relaxed) & ~kReceiveAtOnce) == 0;
}

// What a call ends with after -errno.
inline int give(ssize_t result)
{
    errno = static_cast<int>(-result);
    return -1;
}

// Right up to kMostBytes, and more than these where it is more.
inline std::size_t total_length(const msghdr &msg)
{
    std::size_t total = 0;
    for (std::size_t i = 0; i < msg.msg_iovlen; ++i)
        total += msg.msg_iov[i].iov_len <= kMostBytes ? msg.msg_iov[i].iov_len : kMostBytes + 1;
    return total;
}

// What recvmsg() says of bytes of a stream besides them: they name nobody, and nothing comes with them.
inline void describe_bytes(msghdr &msg, int flags)
{
    if (msg.msg_name != nullptr) // the kernel leaves the length alone otherwise
        msg.msg_namelen = 0;
    msg.msg_controllen = 0;
    msg.msg_flags = flags & MSG_CMSG_CLOEXEC;
}

// ---- operations -----------------------------------------------------------------------------------------------------

// fd_table.cpp
void release(Socket &s, int fd);                 // it is free again after this; no lock held
Socket *track_foreign(int fd, bool nonblocking); // another process has made it; nullptr: no memory
void explain(Socket &s);                         // at debug, once: that it was never accelerated, and why
const char *connection_name(const Socket &s, char (&out)[kNameMax]); // "fd=7 127.0.0.1:40123 -> 127.0.0.1:5001"
Socket *socket_by_index(std::uint32_t index); // nullptr outside the pool; the caller checks what it finds
std::uint32_t pool_size();
int highest_descriptor(); // of ours, ever
void lock_pool_for_fork();
void unlock_pool_after_fork();

// receive.cpp: past the program's callback.
ssize_t receive_unscreened(Socket &s, int fd, msghdr *msg, int flags);
inline bool is_screened(const Socket &s)
{
    return (s.receive_extras.load(std::memory_order_relaxed) & kScreened) != 0;
}
inline void note_extra(Socket &s, ReceiveExtra extra, bool on)
{
    if (on)
        s.receive_extras.fetch_or(extra, std::memory_order_release);
    else
        s.receive_extras.fetch_and(static_cast<std::uint8_t>(~extra), std::memory_order_relaxed);
}

// What every protocol does; the locks are taken in the order offload, tx, rx, the engine's poll lock, watchers.
void try_ready(Socket &s); // rx_lock or the poll lock held
// Takes the offer back, and an endpoint that is being connected. A socket that is offloaded by now stays so: its peer
// may have sent bytes, which only RETURN brings back; it has to leave next. No lock held.
void stop_offloading(Socket &s);
// Closes the endpoint; the socket is kernel-only again, or will be once what is left is read. No lock held.
void fall_back(Socket &s, bool keep_unread);
void stay_on_kernel(Socket &s, const char *reason);
// END; then the end of what the peer sends, or RETURN, the wish to have it sent again, where the heir needs that or
// another host is in between. No lock held.
void start_leaving(Socket &s, Heir heir);
void return_one(Socket &s, Heir heir); // start_leaving(), the wait for the answer, and what to do without one
void notify(Socket &s, std::uint32_t events);

// wait.cpp: 0 when `events` (POLLIN or POLLOUT) may be true now, -EINTR, -EAGAIN (timed out), -EBADF (closed meanwhile)
struct Wait {
    std::uint32_t generation; // of the socket at the call's start
    std::uint32_t signals;    // handlers that had run by then
    bool any_signal;          // every handler interrupts (a timeout is set), not only those without SA_RESTART
    // A stream that has lost its endpoint in the middle of the call: only the kernel brings the rest, or a new
    // endpoint.
    bool kernel_only;
    bool begun; // a Call has found the number to be the socket's: it is no other file's that the call waits for
    std::int64_t deadline_ns; // CLOCK_MONOTONIC, kForever
    // Instead of a look at the engine alone in each turn of the spin; true ends the wait, and is kept in `found`.
    // `polite`: the spin has lasted so long that others may run in between.
    bool (*look)(void *argument, bool polite);
    void *look_argument;
    bool found;
};

inline constexpr std::int64_t kForever = INT64_MAX;
Wait begin_wait(const Socket &s, std::int64_t timeout_us);
inline Wait begin_receive(const Socket &s)
{
    return begin_wait(s, s.receive_timeout_us.load(std::memory_order_relaxed));
}
inline Wait begin_send(const Socket &s)
{
    return begin_wait(s, s.send_timeout_us.load(std::memory_order_relaxed));
}
bool is_interrupted(const Wait &wait);
int wait_for(Socket &s, int fd, short events, Wait &wait);
// Behind a descriptor that is not the program's own number any more, what a call of the kernel's would wait for: 0, or
// a negative errno. There a handler that runs between the last look and the kernel's call would go unnoticed.
int await_kept(int fd, short events, const Wait &wait);
std::int64_t now_ns();

} // namespace vma::sock
