// SPDX-License-Identifier: BSD-2-Clause
// What a tracked TCP socket has besides what every tracked socket has: which path each direction of its byte stream is
// on, how many bytes went each way, and the operations that move it. doc/stream-protocol.md is the specification.
#pragma once

#include <errno.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>

#include "compat/src/table/directions.hpp"
#include "compat/src/table/due.hpp"
#include "compat/src/table/idle_marks.hpp"
#include "compat/src/table/port_readiness.hpp"
#include "compat/src/table/socket_state.hpp"
#include "compat/src/table/transport.hpp"

struct fi_cq_data_entry;

namespace vma::sock {

// How far a connection to another host is on its way to an endpoint (remote_connect.cpp). Offload lock.
struct Attempt {
    Racy<bool> open = false;          // it is on the list of attempts
    Racy<std::uint32_t> again_at = 0; // sends and receives before the next one
    fid_pep *listener = nullptr;      // of a connector
    std::int64_t due_ns = 0;          // when to do the next step
    std::uint32_t tries = 0;
    bool listens = false;     // of a guest's stream: at a name made of `cookie` (meeting.cpp)
    std::uint64_t cookie = 0; // SO_COOKIE of this socket, or the pair's number
    std::uint32_t asked = 0;  // of vmad: the question's number, 0 none
    bool is_whole = false;    // when it was asked the other end was established
};

// What vma_stats has been told of the memory of a device that an endpoint sends from.
struct ToldMemory {
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;
    std::uint64_t out_of_buffer = 0;
};

class Stream : public Socket
{
public:
    std::atomic<const Transport *> transport{
        &kSharedRing}; // of a stream; changed with offload, tx, rx and poll lock held
    Role role = Role::kUnknown;
    Racy<bool> evaluated = false;       // addresses were looked at: it is a candidate
    Racy<bool> remote = false;          // once evaluated: the peer is on another host
    Racy<bool> guest = false;           // likewise: it is another user's, see doc/trust.md
    uid_t peer_user = 0;                // likewise; offload lock
    std::uint64_t peer_cookie = 0;      // likewise: SO_COOKIE of the other end
    std::uint32_t peer_inode = 0;       // likewise: its inode number
    bool by_broker = false;             // likewise: vmad may know it, this network namespace doesn't
    Racy<bool> was_accelerated = false; // it had an endpoint: its peer can have one
    std::atomic<bool> send_shut{false};
    Racy<bool> kernel_options =
        false; // such were set as only the kernel follows: it accepts connections that have them
    // Of the operations: when it was asked last whether others hold the socket, and after how many more it is asked
    // again; 0: not asked since the last offload. And how many forks there had been.
    std::atomic<std::uint32_t> ask_holders_since{0};
    std::atomic<std::uint32_t> ask_holders_forks{0};
    std::atomic<std::uint32_t> ask_holders_after{0};
    // How many forks there had been when the bytes of a direction were counted, others' too; 0: that was never
    // necessary. Written with the offload lock held.
    Racy<std::uint32_t> sent_counted_at = 0;
    Racy<std::uint32_t> received_counted_at = 0;
    Racy<bool> leaves_first = false;     // it is to be accelerated before its first byte, says the habit
    Racy<bool> offered_first = false;    // likewise, and accept() has left an offer
    Racy<std::uint64_t> left_after = 0;  // sends and receives by the kernel, where it was accelerated
    std::atomic<bool> used{false};       // a call has moved bytes, or tried to
    Racy<std::uint32_t> seen_offers = 0; // generation of the offers page at our last look
    Sender tx;
    Receiver rx;
    // The endpoint. Changed by put_endpoint(), with tx_lock, rx_lock and the engine's poll lock held.
    Racy<fid_ep *> endpoint = nullptr;
    bool connecting = false; // endpoint opened, not connected
    DueFlag endpoint_down;
    DueFlag tx_work; // something waits for the holder of tx_lock
    // POLLRDHUP, POLLHUP once the kernel said so, POLLERR until it doesn't. Above them, how often it has told.
    std::atomic<std::uint32_t> kernel_state{0};
    Stream *next_live = nullptr; // list of sockets with an endpoint (engine), or of attempts
    Stream *prev_live = nullptr;
    ToldMemory told_memory; // of the endpoint's. Offload lock
    Attempt attempt;
    Device *port = nullptr;                        // that leads to the peer, once it was found. Offload lock
    PortReadiness port_ready;                      // of a stream that it carries
    std::atomic<bool> transport_over{false};       // the transport has ended: fall_back() is due
    Racy<bool> keepalive = false;                  // SO_KEEPALIVE, which the kernel's socket doesn't have meanwhile
    Racy<bool> quickack = false;                   // TCP_QUICKACK was set since then
    std::atomic<bool> aborted{false};              // by abort_stream()
    std::atomic<std::int64_t> lingers_until_ns{0}; // closed by the program, the peer's answer is still out; 0: not so
    IdleMarks idle;                                // the helper thread's
    Racy<bool> let_go = false;                     // for its idleness (idle_streams.cpp)
    std::uint32_t told_retransmissions = 0;        // as told_memory
    fid_ep *retired = nullptr;                     // retired.cpp
};

// Of a socket whose protocol is the stream's: its table's functions, and who came by a transport, know that it is.
inline Stream &as_stream(Socket &s)
{
    return static_cast<Stream &>(s);
}
inline const Stream &as_stream(const Socket &s)
{
    return static_cast<const Stream &>(s);
}

// For what goes through sockets of all kinds. nullptr: it isn't one.
inline Stream *stream_of(Socket &s)
{
    return &protocol(s) == &kStreamProtocol ? &as_stream(s) : nullptr;
}
inline const Stream *stream_of(const Socket &s)
{
    return &protocol(s) == &kStreamProtocol ? &as_stream(s) : nullptr;
}

inline const Transport &transport(const Stream &s)
{
    return *s.transport.load(std::memory_order_relaxed);
}

// In both directions, by this process.
inline bool is_shut(const Stream &s)
{
    return s.send_shut.load(std::memory_order_seq_cst) && s.receive_shut.load(std::memory_order_seq_cst);
}

// The shared ring is asked without a call: it is what the hot paths and spinning loops meet.
inline bool by_shared_ring(const Stream &s)
{
    return s.transport.load(std::memory_order_relaxed) == &kSharedRing;
}

// kernel_counts.cpp: the kernel says 0 to a receive, and bytes are missing: the library at the other end has reset the
// connection, and a call of ours was told that already. errno may change.
bool has_ended_early(const Stream &s);

// What the kernel gave a receive that asked for bytes: as many, or -errno. Of a stream that either end had to reset it
// tells the reset to whoever asks first, sender or receiver, and says 0 to the others: who waits for bytes is to hear
// of it too, and never of an end, as bytes are missing.
inline ssize_t received_by_kernel(const Stream &s, ssize_t n)
{
    if (n > 0) [[likely]]
        return n;
    const int error = n == 0 ? 0 : errno;
    const bool is_lost = n == 0 ? !s.receive_shut.load(std::memory_order_relaxed) : error == ENOTCONN;
    if (is_lost && (s.aborted.load(std::memory_order_relaxed) || (n == 0 && has_ended_early(s))))
        return -ECONNRESET;
    return -error;
}

// The next attempt is after eight more sends and receives, the one after it after twice as many, and so on, up to
// `most_doublings`: who is not there yet may be soon, and most never will. Offload lock held.
inline void try_later(Stream &s, std::uint32_t most_doublings = 19)
{
    constexpr std::uint32_t kFirst = 8;
    s.attempt.again_at =
        s.operations.load(std::memory_order_relaxed) + (kFirst << std::min(s.attempt.tries++, most_doublings));
}

constexpr std::uint32_t kMostDoublingsForSets = 7; // of one that an epoll set can't follow yet

// ---- operations -----------------------------------------------------------------------------------------------------

// transmit.cpp: the sending direction. tx_lock held unless said otherwise.
// Bytes, or -errno; never blocks.
inline ssize_t transmit(Stream &s, int fd, const msghdr *msg, std::size_t skip, int flags)
{
    return transport(s).send(s, fd, msg, skip, flags);
}
bool send_tag(Stream &s, Tag type, std::uint64_t value); // false: no slot or endpoint down
void end_transmit(Stream &s, bool final);                // END now; back on the kernel
void finish_resend(
    Stream &s); // what the peer gave back and the kernel has no room for: now or never, as the endpoint goes
void do_tx_work(Stream &s);
void unlock_tx(Stream &s);          // unlocks, and does the work that came meanwhile
void try_tx_work(Stream &s);        // no lock held: does it unless somebody else holds the lock (who will then)
void look_for_slots(Stream &s);     // no lock held: a send found none, and perhaps nothing tells of those there are now
bool can_transmit(const Stream &s); // there is room, and the rate limit allows it; no lock needed

// may_close() looks without a lock, while the helper thread may be opening or closing it.
inline void put_endpoint(Stream &s, fid_ep *endpoint)
{
    s.endpoint.publish(endpoint);
}
inline bool has_endpoint(const Stream &s)
{
    return s.endpoint.acquire() != nullptr;
}

// remote.cpp
bool may_close(const Stream &s); // nothing is lost if we end the endpoint now
void abort_stream(Stream &s,
                  const char *why); // bytes may be lost: both programs get a reset. Any lock but watch_lock may be held
// The last descriptor is about to be closed, no lock is held. True: the helper thread releases the socket, once the
// peer has answered or did not within a minute.
bool begin_linger(Stream &s, int fd);
bool linger_is_over(const Stream &s);
void end_linger(Stream &s); // no lock held

// consume.cpp: the receiving direction. rx_lock held unless said otherwise.
// Bytes, 0 at EOF, or -errno; never blocks.
inline ssize_t consume(Stream &s, int fd, msghdr *msg, std::size_t skip, int flags)
{
    return transport(s).receive(s, fd, msg, skip, flags);
}
void settle(Stream &s); // spans that are used up
void find_start(
    Stream &s); // START is known, and the kernel's bytes before it may have been read by somebody who doesn't count
void send_credit(Stream &s);
bool ring_has_input(const Stream &s); // the shared ring's and the remote ring's; no lock needed

// peek.cpp. No lock held.
// Before a peek for `room` bytes: whoever peeks until a message is whole would hear of its last byte by the helper
// thread else.
void look_for_more(const Stream &s, std::size_t room);
// A peek that waits for all, of a socket without an endpoint that has bytes left in memory, and has told `done` bytes.
// Blocks. Bytes, or -errno.
ssize_t peek_until_all(Stream &s, int fd, msghdr *msg, int flags, std::size_t done);

// Bytes of the endpoint that the program can read now; no lock needed.
inline bool has_input(const Stream &s)
{
    return by_shared_ring(s) ? ring_has_input(s) : transport(s).has_input(s);
}

// By the transport, in one piece; no lender: nothing is there, or it can't be lent. rx_lock held.
inline Loan lend(Stream &s, std::size_t most)
{
    return s.endpoint == nullptr || s.guest ? Loan{} : transport(s).lend(s, most); // a guest could change what is lent
}

// offload.cpp: offers, attaching, tearing down. Lock order: offload, tx, rx, the engine's poll lock, watchers.
void count_operation(Stream &s, int fd, bool received); // a send or receive succeeded on the kernel
void await_offload(Stream &s, int fd, bool receives);   // first_byte.cpp: the first call waits until it is accelerated
// An acceptor whose peer may attach before it sends, or is at it; a connector that has begun to in connect().
inline bool may_attach_first(const Stream &s)
{
    return s.operations.load(std::memory_order_relaxed) == 0 &&
           ((s.role == Role::kAcceptor && s.cookie != 0) || s.endpoint != nullptr);
}
inline void note_use(Stream &s, int fd, bool receives) // before a send or receive on the kernel
{
    if (!s.used.load(std::memory_order_relaxed)) [[unlikely]]
        await_offload(s, fd, receives);
}
void await_ready(Stream &s, int fd);               // first_byte.cpp
inline void note_offloaded_send(Stream &s, int fd) // before one that may go by the kernel all the same
{
    if (!s.used.load(std::memory_order_relaxed)) [[unlikely]]
        await_ready(s, fd);
}
void add_live(Stream *&list, Stream &s); // a stream is on one such list at a time; offload lock held
void remove_live(Stream *&list, Stream &s);
// The endpoint that start_leaving() has left. False: it has ended meanwhile and another one is there, whose peer may be
// writing: that one is to be left, too. No lock held.
bool close_left(Stream &s, Closing closing = Closing::kNow);
bool discard_left(Stream &s); // likewise, offload lock held
void drop_rest(Stream &s);    // all is read that was left of an endpoint that is closed already. No lock held
void on_connect_request(fi_info *info, const void *data, std::size_t len); // helper thread; takes over `info`
void on_connected(fid_ep *endpoint);
void attaching_was_refused(Stream &s); // likewise, and its endpoint is closed
void on_down(fid_ep *endpoint, const char *why);
int open_endpoint(Stream &s, fi_info *info, Device &device); // offload lock held; 0 or a negative errno
bool stand_beside(const Stream &s, int fd);                  // it has an endpoint, not connected; offload lock held
void discard_endpoint(Stream &s);                            // likewise, one that is not connected
void finish_if_done(Stream &s);                              // tears down an endpoint that has ended in both directions

// events.cpp: what the peer says
void handle_tag(Stream &s, std::uint64_t tag, std::size_t len);   // from the engine, poll lock held
void handle_port_entry(Stream &s, const fi_cq_data_entry &entry); // transport/port.cpp: likewise, of a port's queue
bool is_returning(const Stream &s);                               // an answer is still out
std::int64_t return_deadline(); // of an answer that is awaited now, CLOCK_MONOTONIC: a second
std::int64_t exit_deadline();   // likewise, where bytes are lost without it: ten
void wait_returned(Stream &s, std::int64_t until_ns);
void give_up_waiting(
    Stream &s); // no answer came in time: what the peer has not begun to send again stays here. No lock held
void violation(Stream &s, const char *what); // the peer breaks the protocol: both programs get an error
void tick(Stream &s);                        // helper thread: what could not be sent before

} // namespace vma::sock
