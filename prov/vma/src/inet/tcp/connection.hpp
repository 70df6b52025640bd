// SPDX-License-Identifier: BSD-2-Clause
// One TCP connection's state (RFC 9293, 3.3.1: the transmission control block). Data only; what it does is in tcp.hpp.
#pragma once

#include "prov/vma/src/inet/base/next_hops.hpp"
#include "prov/vma/src/inet/tcp/answer_limit.hpp"
#include "prov/vma/src/inet/tcp/byte_queue.hpp"
#include "prov/vma/src/inet/tcp/congestion.hpp"
#include "prov/vma/src/inet/tcp/handshake.hpp"
#include "prov/vma/src/inet/tcp/recovery.hpp"
#include "prov/vma/src/inet/tcp/rtt.hpp"
#include "prov/vma/src/inet/tcp/segment.hpp"
#include "prov/vma/src/inet/tcp/sent.hpp"

namespace vma::inet {

// LISTEN has a table of its own, TIME-WAIT too (time_wait.hpp): a connection has that state while it moves there.
enum class TcpState : std::uint8_t {
    kClosed,
    kSynSent,
    kSynReceived,
    kEstablished,
    kFinWait1,
    kFinWait2,
    kCloseWait,
    kClosing,
    kLastAck,
    kTimeWait,
};

// What a socket's options say. Times in nanoseconds; all may be changed while the connection lives but those marked.
struct TcpSettings {
    std::uint32_t send_buffer = 4U << 20;    // bytes that send() accepts before they are acknowledged
    std::uint32_t receive_buffer = 4U << 20; // largest window; the scale is chosen when the connection opens
    std::uint16_t most_mss = 0;              // at open: 0: as the path's MTU allows
    std::uint8_t traffic_class = 0;          // its ECN bits are TCP's
    std::uint8_t hop_limit = 64;
    CongestionAlgorithm congestion = CongestionAlgorithm::kCubic;
    bool window_scaling = true; // at open
    bool timestamps = true;     // at open
    bool sack = true;           // at open
    bool ecn = false;           // at open: ask for it; it is granted to a peer that asks in any case
    bool nodelay = false;       // Nagle off: RFC 9293, 3.7.4
    bool cork = false;          // only full segments leave
    bool quick_ack = false;     // each segment is acknowledged at once
    bool keepalive = false;
    std::uint8_t keepalive_probes = 9;
    std::uint8_t syn_retries = 6;
    std::uint8_t retries = 15;
    Nanos keepalive_idle = 7200 * kSecond;
    Nanos keepalive_interval = 75 * kSecond;
    Nanos user_timeout = 0;           // RFC 9293, 3.8.3; 0: by the number of retries
    std::uint64_t rate = 0;           // bytes of data a second, 0: as fast as it goes
    std::uint32_t quick_ack_most = 0; // bytes of a segment to which quick_ack applies, 0: all
    std::uint32_t syn_rate = 0;       // of a listener: SYNs a second that are heard, 0: all
};

enum class TcpTimer : std::uint8_t { kRetransmit, kDelayedAck, kKeepalive, kPace, kLife };
inline constexpr unsigned kTcpTimers = 5;

// What the retransmission timer is set for.
enum class Alarm : std::uint8_t { kNone, kTimeout, kProbe, kReorder, kPersist };

inline constexpr unsigned kMostRanges = 64;

// A place on one of the stack's lists of connections.
struct Link {
    std::uint32_t next = ~0U;
    std::uint32_t prev = ~0U;
    bool on = false;
};

// Received ranges behind a hole, the one that changed last first: that order is what SACK tells (RFC 2018, 4).
struct OutOfOrder {
    SeqRange range[kMostRanges];
    std::uint32_t count = 0;
};

// Receiving: the queue's first byte has the number read_from.
struct Receive {
    Seq irs = 0;
    Seq next = 0;       // RCV.NXT
    Seq advertised = 0; // right edge of the window that the peer knows
    Seq acked = 0;      // RCV.NXT when we last sent an ACK
    std::uint32_t stamp_recent = 0;
    Nanos stamp_recent_at = 0;
    std::uint32_t unacked = 0;        // bytes received since
    std::uint16_t peer_segment = 536; // size of the segments that come
    std::uint8_t quick = 0;           // segments that are still acknowledged at once
    std::uint8_t duplicates_due = 0; // acknowledgements, one for each segment behind a hole, to a peer that has no SACK
    bool fin_received = false;
    bool have_fin = false; // its place is known, perhaps behind a hole
    Seq fin_at = 0;
    bool ece_due = false; // RFC 3168, 6.1.3: until the peer says CWR
    bool dsack_due = false;
    SeqRange dsack;
    ByteQueue in;
    OutOfOrder behind;
};

struct Connection {
    Flow flow;
    TcpState state = TcpState::kClosed;
    TcpSettings settings;
    std::uint32_t generation = 0;
    std::uint32_t hash = 0;
    std::uint32_t listener = ~0U; // whose queue it is in, or will be
    NextHopIndex path = kNoNextHop;
    std::uint64_t user = 0; // the caller's own

    Handshake agreed;
    std::uint32_t stamp_offset = 0;

    // Sending: the queue's first byte has the number data_from.
    Seq iss = 0;
    Seq una = 0;
    Seq nxt = 0;
    Seq data_from = 0;
    Seq small_end = 0;   // of the last segment that was not full
    Seq adopted_end = 0; // of what another TCP may have sent (handover.cpp)
    bool adopted = false;
    bool urgent = false; // its peer has sent urgent data: nothing is taken any more until the other TCP has it back
    std::uint32_t window = 0;
    std::uint32_t most_window = 0;
    Seq window_seq = 0; // WL1 and WL2
    Seq window_ack = 0;
    std::uint16_t mss = 536; // of data without other options than time stamps
    bool fin_wanted = false;
    bool fin_sent = false;
    bool syn_due = false; // SYN or SYN-ACK is to be sent (again)
    bool ack_due = false;
    bool probe_due = false;         // window probe or keep-alive
    bool capable_transport = false; // of the segment that is being written: it may be marked
    bool cwr_due = false;           // RFC 3168, 6.1.2
    bool window_limited = false;
    ByteQueue out;
    SentList sent;
    RoundTrip rtt;
    Congestion congestion;
    Recovery recovery;
    Alarm alarm = Alarm::kNone;
    unsigned retries = 0; // time-outs in a row without news of the peer
    Nanos last_progress = 0;
    Nanos last_sent = 0;
    Nanos pace_at = 0; // nothing new leaves before

    Receive receive;

    AnswerLimit answers;           // to what may have been guessed
    AnswerLimit duplicate_answers; // to what has come before

    Nanos last_heard = 0;
    unsigned probes = 0; // keep-alive or window probes without an answer
    Nanos at[kTcpTimers] = {kNever, kNever, kNever, kNever, kNever};
    Nanos armed = kNever; // what the heap has
    bool orphan = false;  // the program has closed it
    int error = 0;        // errno that ended it, not yet told
    int soft_error = 0;   // of an ICMP message: told if it ends by a time-out
    std::uint32_t events = 0;
    bool writable_wanted = false;
    bool record_wanted = false; // it has data, and the pool of records had none left

    // Lists of the stack.
    Link ready;
    Link event;
    std::uint32_t next_accept = ~0U;
    bool in_table = false;

    // Counts, for TCP_INFO.
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
    std::uint64_t segments_sent = 0;
    std::uint64_t segments_received = 0;
    std::uint32_t retransmissions = 0;

    std::uint32_t unsent() const // bytes of data that were never sent
    {
        const std::uint32_t from = distance(data_from, nxt) > 0 ? nxt - data_from : 0;
        const auto queued = static_cast<std::uint32_t>(out.size());
        return from < queued ? queued - from : 0;
    }
    // Nagle's algorithm as Minshall has it (draft-minshall-nagle-01), and so the kernel: the end of a long message
    // doesn't wait for the acknowledgement of its full segments, which the peer may delay.
    bool has_small_out() const { return before(una, small_end) && at_or_before(small_end, nxt); }
    bool synchronized() const { return state >= TcpState::kEstablished; }
};

} // namespace vma::inet
