// SPDX-License-Identifier: BSD-2-Clause
// The two directions of a stream: which path each is on, how many bytes went each way, and the tags that its ends tell
// each other (doc/stream-protocol.md).
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/table/due.hpp"
#include "compat/src/table/racy.hpp"

namespace vma::sock {

// ---- tags: CQ data of a stream's writes ---------------------------------------------------------------------------

enum class Tag : std::uint8_t { kData = 1, kCredit, kReady, kStart, kEnd, kReturn, kFinal = 8, kSeen, kLeave, kHere };
inline constexpr unsigned kTagTypeBits = 8; // below the value: a device has short data cheaper than long
// In the value of kData, above any length: libc/kernel_acts.hpp.
inline constexpr std::uint64_t kAfterKernel = std::uint64_t{1} << 22;
inline constexpr std::uint64_t kNone = ~std::uint64_t{0};

inline constexpr std::uint64_t make_tag(Tag type, std::uint64_t value) // 56 bits of it
{
    return value << kTagTypeBits | static_cast<std::uint64_t>(type);
}

enum class Path : std::uint8_t { kKernel, kEndpoint };

// Bytes of one write into the ring: long enough to copy well, short enough to overlap with the reader.
inline constexpr std::uint32_t kLongestPiece = 32768;
static_assert(kLongestPiece < kAfterKernel);

// One direction we send. Guarded by tx_lock but for the atomics, which the engine's poller writes.
struct Sender {
    std::atomic<Path> path{Path::kKernel};
    bool final = false;                  // no START any more: RETURN came, or we end the endpoint ourselves
    std::atomic<bool> peer_ready{false}; // READY
    std::atomic<std::uint64_t> kernel_bytes{0};
    Racy<std::uint64_t> position = 0;     // endpoint bytes sent
    std::atomic<std::uint64_t> credit{0}; // endpoint bytes the peer has consumed
    std::uint64_t ring = 0;               // bytes of the peer's region, power of two
    std::uint32_t slots_left = 0;         // free slots, about
    std::uint32_t piece = kLongestPiece;  // most bytes of one write; 0: the span's time has not come (pacing.hpp)
    std::uint32_t kernel_acts = 0;        // their number that the peer was told of last
    std::atomic<bool> found_full{false};  // a write did not fit since the last POLLOUT news
    std::atomic<bool> told_full{
        false};            // the program was, since the last CREDIT: a call that waits finds no room either
    DueFlag slots_blocked; // a write found none: wait for the next CREDIT
    std::atomic<std::uint64_t> resend_from{kNone}; // taking bytes back after RETURN: next one to send by the kernel
    bool guarded = false;  // while that lasts the kernel's socket resets the connection at its end
    linger unguarded = {}; // SO_LINGER as it was
    std::atomic<std::uint64_t> end_pending{kNone}; // END that found no slot yet
    std::atomic<std::uint64_t> return_at{kNone};   // RETURN arrived: the peer consumed so much
    // Of a peer on another host, and of this endpoint.
    std::atomic<bool> started{false};     // START went out
    std::atomic<bool> final_sent{false};  // FINAL went out: no START comes after it
    std::atomic<std::uint32_t> unseen{0}; // START and FINAL that no SEEN has answered
    std::atomic<bool> leave{false};       // LEAVE came

    // Whatever an endpoint has left: as before the first one.
    void forget_endpoint()
    {
        path = Path::kKernel;
        final = false;
        peer_ready = false;
        position = 0;
        credit = 0;
        slots_left = 0;
        kernel_acts = 0;
        told_full = false;
        slots_blocked = false;
        resend_from = kNone;
        guarded = false;
        end_pending = kNone;
        return_at = kNone;
        started = false;
        final_sent = false;
        unseen = 0;
        leave = false;
    }
};

struct StreamLoans;

// One direction we receive. Guarded by rx_lock but for the atomics.
struct Receiver {
    std::atomic<Path> path{Path::kKernel};
    bool final = false; // RETURN was answered, or the peer is gone: stays on the kernel
    std::atomic<std::uint64_t> kernel_bytes{0};
    std::atomic<std::uint64_t> kernel_owes{0}; // since connect: as many have to come by it before the stream may end
    std::atomic<std::uint64_t> written{0};     // endpoint bytes arrived
    std::atomic<std::uint64_t> consumed{0};    // endpoint bytes the program has taken
    std::atomic<std::uint64_t> credited{0};    // last CREDIT sent
    std::uint32_t uncredited_writes = 0;       // DATA since the last CREDIT (engine's poller)
    std::atomic<std::uint64_t> start_at{kNone};
    std::atomic<std::uint64_t> end_at{kNone};
    std::atomic<bool> returning{false};          // RETURN sent, not answered
    DueFlag credit_due;                          // CREDIT found no slot
    bool leaving = false;                        // we cut, or say RETURN: no span comes after this one
    bool cut = false;                            // the peer can write nothing more, and all that it wrote is counted
    bool span_over = false;                      // since a call has begun to read; rx_lock
    std::atomic<bool> ended{false};              // END came, and no START since
    StreamLoans *loans = nullptr;                // since the first one of this endpoint
    std::atomic<std::uint64_t> lent_from{kNone}; // the first byte that is on loan
    const std::uint8_t *base = nullptr;          // our region
    std::uint64_t ring = 0;                      // its bytes, power of two
    std::uint8_t *leftovers = nullptr; // what `base` is when the endpoint is closed and bytes are left to read
    // Of a peer on another host, and of this endpoint.
    std::atomic<bool> peer_here{false};       // HERE came: it will say FINAL before it leaves
    std::atomic<bool> here_due{false};        // HERE to be sent
    std::atomic<bool> ready_sent{false};      // so it may have STARTed
    std::atomic<bool> final_seen{false};      // FINAL came: all that it sent by the endpoint is here
    std::atomic<bool> leave_due{false};       // LEAVE to be sent
    std::atomic<std::uint32_t> seen_due{0};   // SEEN to be sent
    std::uint32_t ticks = 0;                  // of the helper thread
    std::atomic<std::int64_t> ended_at_ns{0}; // when the kernel was found at its end and FINAL was not here; 0 not so

    // Whatever an endpoint has left, but for bytes: as before the first one.
    void forget_endpoint()
    {
        path = Path::kKernel;
        final = false;
        written = 0;
        consumed = 0;
        credited = 0;
        uncredited_writes = 0;
        start_at = kNone;
        end_at = kNone;
        ended = false;
        returning = false;
        credit_due = false;
        leaving = false;
        cut = false;
        peer_here = false;
        here_due = false;
        ready_sent = false;
        final_seen = false;
        leave_due = false;
        seen_due = 0;
        ended_at_ns = 0;
    }
};

} // namespace vma::sock
