// SPDX-License-Identifier: BSD-2-Clause
// The state of one tracked TCP socket and of its byte stream: which path each direction is on, how many bytes went each
// way, and the operations that move it. doc/stream-protocol.md is the specification.
#pragma once

#include <errno.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>

#include "compat/src/base/addresses.hpp"
#include "compat/src/base/lock.hpp"
#include "compat/src/base/spin_habit.hpp"
#include "compat/src/stats/region.hpp"
#include "compat/src/table/directions.hpp"
#include "compat/src/table/due.hpp"
#include "compat/src/table/idle_marks.hpp"
#include "compat/src/table/pacing_state.hpp"
#include "compat/src/table/port_readiness.hpp"
#include "compat/src/table/protocol.hpp"
#include "compat/src/table/ring_claim.hpp"
#include "compat/src/table/socket.hpp"
#include "compat/src/table/transport.hpp"

struct fi_cq_data_entry;

namespace vma::extra {
struct State;
}

namespace vma::sock {

namespace udp {
struct State;
}

// ---- the socket -----------------------------------------------------------------------------------------------------

enum class Mode : std::uint8_t {
    kFree,       // in the pool
    kKernelOnly, // on the kernel, may be offloaded
    kKernel,     // on the kernel for good (pinned, not a candidate)
    kOffloaded,  // an endpoint is connected; waits look at both paths
};

struct Device;

// How far a connection to another host is on its way to an endpoint (remote_connect.cpp). Offload lock.
struct Attempt {
    Racy<bool> open = false;          // it is on the list of attempts
    Racy<std::uint32_t> again_at = 0; // sends and receives before the next one
    fid_pep *listener = nullptr;      // of a connector
    std::int64_t due_ns = 0;          // when to do the next step
    std::uint32_t tries = 0;
};

// What vma_stats has been told of the memory of a device that an endpoint sends from.
struct ToldMemory {
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;
    std::uint64_t out_of_buffer = 0;
};

class Socket
{
public:
    // Who we are. Set while the socket is made, or under the table's lock.
    std::atomic<Mode> mode{Mode::kFree};
    std::atomic<const Protocol *> protocol{&kStreamProtocol};
    std::atomic<const Transport *> transport{
        &kSharedRing}; // of a stream; changed with offload, tx, rx and poll lock held
    std::atomic<stats::Slot *> record{&stats::g_nobodys.sink}; // what it counts in (accounting.hpp)
    std::atomic<udp::State *> udp{nullptr}; // of a UDP socket: what is said of streams below is not for it
    Role role = Role::kUnknown;
    Racy<bool> evaluated = false;       // addresses were looked at: it is a candidate
    Racy<bool> remote = false;          // once evaluated: the peer is on another host
    Racy<bool> told = false;            // the log has said whether it is accelerated
    Racy<bool> was_accelerated = false; // within this host, as a stream
    std::atomic<bool> pinned{false};    // to the kernel for good
    std::atomic<bool> nonblocking{false};
    std::atomic<std::uint32_t> generation{0}; // bumped when the last descriptor is closed
    std::atomic<std::uint32_t> descriptors{0};
    std::atomic<int> any_fd{-1};                      // one open descriptor of it
    std::atomic<std::int64_t> receive_timeout_us{-1}; // SO_RCVTIMEO, -1 for ever
    std::atomic<std::int64_t> send_timeout_us{-1};
    std::atomic<bool> receive_shut{false};
    std::atomic<bool> send_shut{false};
    Addresses addresses = {};                         // once evaluated
    std::atomic<const char *> kernel_reason{nullptr}; // a literal: why it is not accelerated, for the log

    // Calls inside the kernel while kernel-only; START and READY wait until they are out.
    std::atomic<std::uint32_t> blocked_receivers{0};
    std::atomic<std::uint32_t> blocked_polls{0};
    std::atomic<std::uint32_t> blocked_senders{0};
    std::atomic<std::uint32_t> waiters{0}; // calls that wait while offloaded
    std::atomic<int> kept_fd{-1};          // our own descriptor of a socket that was closed while calls were open
    std::atomic<std::uint32_t> operations{0};
    // Of these: when it was asked last whether others hold the socket, and after how many more it is asked again; 0:
    // not asked since the last offload. And how many forks there had been.
    std::atomic<std::uint32_t> ask_holders_since{0};
    std::atomic<std::uint32_t> ask_holders_forks{0};
    std::atomic<std::uint32_t> ask_holders_after{0};
    Racy<std::uint32_t> seen_offers = 0; // generation of the offers page at our last look

    Mutex tx_lock;
    Mutex rx_lock;
    Sender tx;
    Receiver rx;
    Pacing pacing;

    // The endpoint. Changed by put_endpoint(), with tx_lock, rx_lock and the engine's poll lock held.
    Racy<fid_ep *> endpoint = nullptr;
    bool connecting = false; // endpoint opened, not connected
    DueFlag endpoint_down;
    DueFlag ready_due;                              // READY is to be sent when no bare receiver is left
    DueFlag tx_work;                                // something waits for the holder of tx_lock
    std::atomic<bool> kernel_news{false};           // the kernel has EOF, an error or data on the descriptor
    std::atomic<std::uint32_t> kernel_told{0};      // the helper thread will hear of the next of it (places.cpp)
    std::atomic<std::uint8_t> descriptor_sleeps{0}; // so many go by the descriptor
    std::atomic<std::uint8_t> news_of_kernel{0};    // without as many sleeps at the place between them
    std::atomic<std::uint32_t> kernel_state{0};     // POLLRDHUP, POLLHUP, POLLERR once the kernel said so
    std::atomic<int> pending_error{0};              // errno of a send of our own, which the program has not been told
    Racy<std::uint64_t> cookie = 0;                 // of our open offer, 0 none

    MuxHook mux;
    Mutex watch_lock;
    std::atomic<Watcher *> watchers{nullptr}; // changed with watch_lock

    udp::State *udp_memory = nullptr;           // stays with the Socket
    std::atomic<extra::State *> extra{nullptr}; // likewise
    std::atomic<bool> screened{false};          // the program has a receive callback, or had one
    std::atomic<bool> counts_access{false};     // note_access() wants to know who receives
    Racy<std::uint8_t> ring = 0;                // of the endpoint: its place
    Racy<RingMask> ring_bit = kMainRing;        // likewise, as a mask
    bool listed = false;                        // UDP: on the list of those that the helper thread looks after
    Socket *next_live = nullptr;                // list of sockets with an endpoint (engine), or of attempts
    Socket *prev_live = nullptr;

    Device *device = nullptr; // of the endpoint or of the attempt's listener
    ToldMemory told_memory;   // of the endpoint's. Offload lock
    RingClaim ring_claim;
    Attempt attempt;
    Device *port = nullptr;                        // that leads to the peer, once it was found. Offload lock
    PortReadiness port_ready;                      // of a stream that it carries
    std::atomic<bool> transport_over{false};       // the transport has ended: fall_back() is due
    Racy<bool> keepalive = false;                  // SO_KEEPALIVE, which the kernel's socket doesn't have meanwhile
    Racy<bool> quickack = false;                   // TCP_QUICKACK was set since then
    std::atomic<bool> aborted{false};              // by abort_stream()
    std::atomic<std::int64_t> lingers_until_ns{0}; // closed by the program, the peer's answer is still out; 0: not so

    mux::SpinHabit receive_spins; // of waits for it (wait.cpp)
    mux::SpinHabit send_spins;

    IdleMarks idle;            // the helper thread's
    Racy<bool> let_go = false; // for its idleness (idle_streams.cpp)
    fid_ep *retired = nullptr; // retired.cpp

    Socket *next_free = nullptr;
    std::uint32_t index = 0; // in the pool
};

inline const Protocol &protocol(const Socket &s)
{
    return *s.protocol.load(std::memory_order_relaxed);
}

inline const Transport &transport(const Socket &s)
{
    return *s.transport.load(std::memory_order_relaxed);
}

// The shared ring is asked without a call: it is what the hot paths and spinning loops meet.
inline bool by_shared_ring(const Socket &s)
{
    return s.transport.load(std::memory_order_relaxed) == &kSharedRing;
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

// Of a call that has sent or received something already: it is for the next call, to which the kernel doesn't tell it
// again.
inline void keep_error(Socket &s, int error)
{
    if (error != EAGAIN && error != EINTR && error != EPIPE && error != EFAULT)
        s.pending_error.store(error, std::memory_order_relaxed);
}

// What a socket is that has no endpoint (any more). One that owes the program an error stays kernel-only: on the kernel
// for good nobody would look for it.
inline Mode mode_without_endpoint(const Socket &s)
{
    const bool owes = s.pending_error.load(std::memory_order_relaxed) != 0;
    return s.pinned.load(std::memory_order_relaxed) && !owes ? Mode::kKernel : Mode::kKernelOnly;
}

// errno of a receive from the kernel. Of a stream that we had to reset it tells the reset to whoever asks first, sender
// or receiver; who waits for bytes is to hear of it too.
inline int receive_error(const Socket &s)
{
    return errno == ENOTCONN && s.aborted.load(std::memory_order_relaxed) ? ECONNRESET : errno;
}

// Whether a call with these flags waits for what is not there yet.
inline bool may_block(const Socket &s, int flags)
{
    return (flags & MSG_DONTWAIT) == 0 && !s.nonblocking.load(std::memory_order_relaxed);
}

// What a call ends with after -errno.
inline int give(ssize_t result)
{
    errno = static_cast<int>(-result);
    return -1;
}

inline std::size_t total_length(const msghdr &msg)
{
    std::size_t total = 0;
    for (std::size_t i = 0; i < msg.msg_iovlen; ++i)
        total += msg.msg_iov[i].iov_len;
    return total;
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

// transmit.cpp: the sending direction. tx_lock held unless said otherwise.
// Bytes, or -errno; never blocks.
inline ssize_t transmit(Socket &s, int fd, const msghdr *msg, std::size_t skip, int flags)
{
    return transport(s).send(s, fd, msg, skip, flags);
}
bool send_tag(Socket &s, Tag type, std::uint64_t value); // false: no slot or endpoint down
void end_transmit(Socket &s, bool final);                // END now; back on the kernel
void finish_resend(
    Socket &s); // what the peer gave back and the kernel has no room for: now or never, as the endpoint goes
void do_tx_work(Socket &s);
void unlock_tx(Socket &s);          // unlocks, and does the work that came meanwhile
void try_tx_work(Socket &s);        // no lock held: does it unless somebody else holds the lock (who will then)
bool can_transmit(const Socket &s); // there is room, and the rate limit allows it; no lock needed

// may_close() looks without a lock, while the helper thread may be opening or closing it.
inline void put_endpoint(Socket &s, fid_ep *endpoint)
{
    s.endpoint.publish(endpoint);
}
inline bool has_endpoint(const Socket &s)
{
    return s.endpoint.acquire() != nullptr;
}

// remote.cpp
bool may_close(const Socket &s); // nothing is lost if we end the endpoint now
void abort_stream(Socket &s,
                  const char *why); // bytes may be lost: both programs get a reset. Any lock but watch_lock may be held
// The last descriptor is about to be closed, no lock is held. True: the helper thread releases the socket, once the
// peer has answered or did not within 5 s.
bool begin_linger(Socket &s, int fd);
bool linger_is_over(const Socket &s);
void end_linger(Socket &s); // no lock held

// consume.cpp: the receiving direction. rx_lock held unless said otherwise.
// Bytes, 0 at EOF, or -errno; never blocks.
inline ssize_t consume(Socket &s, int fd, msghdr *msg, std::size_t skip, int flags)
{
    return transport(s).receive(s, fd, msg, skip, flags);
}
void settle(Socket &s); // spans that are used up
void find_start(
    Socket &s); // START is known, and the kernel's bytes before it may have been read by somebody who doesn't count
void send_credit(Socket &s);
bool ring_has_input(const Socket &s); // the shared ring's and the remote ring's; no lock needed

// Bytes of the endpoint that the program can read now; no lock needed.
inline bool has_input(const Socket &s)
{
    return by_shared_ring(s) ? ring_has_input(s) : transport(s).has_input(s);
}

// By the transport, in one piece; no lender: nothing is there, or it can't be lent. rx_lock held.
inline Loan lend(Socket &s, std::size_t most)
{
    return s.endpoint == nullptr ? Loan{} : transport(s).lend(s, most);
}

// receive.cpp: past the program's callback.
ssize_t receive_unscreened(Socket &s, int fd, msghdr *msg, int flags);
inline bool is_screened(const Socket &s)
{
    return s.screened.load(std::memory_order_relaxed);
}

// offload.cpp: offers, attaching, tearing down. Lock order: offload, tx, rx, the engine's poll lock, watchers.
void count_operation(Socket &s, int fd, bool received); // a send or receive succeeded on the kernel
void add_live(Socket *&list, Socket &s);                // a socket is on one such list at a time; offload lock held
void remove_live(Socket *&list, Socket &s);
void try_ready(Socket &s); // rx_lock or the poll lock held
// Takes the offer back, and an endpoint that is being connected. A socket that is offloaded by now stays so: its peer
// may have sent bytes, which only RETURN brings back. No lock held.
void stop_offloading(Socket &s);
// Closes the endpoint; the socket is kernel-only again, or will be once what is left is read. No lock held.
void fall_back(Socket &s, bool keep_unread);
// The endpoint that start_leaving() has left. False: it has ended meanwhile and another one is there, whose peer may be
// writing: that one is to be left, too. No lock held.
bool close_left(Socket &s, Closing closing = Closing::kNow);
bool discard_left(Socket &s); // likewise, offload lock held
void drop_rest(Socket &s);    // all is read that was left of an endpoint that is closed already. No lock held
void on_connect_request(fi_info *info, const void *data, std::size_t len); // helper thread; takes over `info`
void on_connected(fid_ep *endpoint);
void on_down(fid_ep *endpoint, const char *why);
int open_endpoint(Socket &s, fi_info *info, Device &device); // offload lock held; 0 or a negative errno
void discard_endpoint(Socket &s);                            // likewise, one that is not connected
void stay_on_kernel(Socket &s, const char *reason);
void finish_if_done(Socket &s); // tears down an endpoint that has ended in both directions

// events.cpp: what the peer says
void handle_tag(Socket &s, std::uint64_t tag, std::size_t len);   // from the engine, poll lock held
void handle_port_entry(Socket &s, const fi_cq_data_entry &entry); // transport/port.cpp: likewise, of a port's queue
// END; then the end of what the peer sends, or RETURN, the wish to have it sent again, where the heir needs that or
// another host is in between. No lock held.
void start_leaving(Socket &s, Heir heir);
bool is_returning(const Socket &s); // an answer is still out
std::int64_t return_deadline();     // of an answer that is awaited now, CLOCK_MONOTONIC: a second
void wait_returned(Socket &s, std::int64_t until_ns);
void give_up_waiting(
    Socket &s); // no answer came in time: what the peer has not begun to send again stays here. No lock held
void violation(Socket &s, const char *what); // the peer breaks the protocol: both programs get an error
void read_timeouts(Socket &s, int fd);       // of a socket that another process has set up
void return_one(Socket &s, Heir heir);       // all four: the socket is kernel-only after it
void notify(Socket &s, std::uint32_t events);
void tick(Socket &s); // helper thread: what could not be sent before

// wait.cpp: 0 when `events` (POLLIN or POLLOUT) may be true now, -EINTR, -EAGAIN (timed out), -EBADF (closed meanwhile)
struct Wait {
    std::uint32_t generation; // of the socket at the call's start
    std::uint32_t signals;    // handlers that had run by then
    bool any_signal;          // every handler interrupts (a timeout is set), not only those without SA_RESTART
    // A stream that has lost its endpoint in the middle of the call: only the kernel brings the rest, or a new
    // endpoint.
    bool kernel_only;
    std::int64_t deadline_ns; // CLOCK_MONOTONIC, kForever
    // Instead of a look at the engine alone in each turn of the spin; true ends the wait, and is kept in `found`.
    // `polite`: the spin has lasted so long that others may run in between.
    bool (*look)(void *argument, bool polite);
    void *look_argument;
    bool found;
};

inline constexpr std::int64_t kForever = INT64_MAX;
Wait begin_wait(const Socket &s, std::int64_t timeout_us);
int wait_for(Socket &s, int fd, short events, Wait &wait);
std::int64_t now_ns();

} // namespace vma::sock
