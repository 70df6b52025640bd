// SPDX-License-Identifier: BSD-2-Clause
// TCP without I/O (RFC 9293 and those that doc/inet.md lists): packets, calls and the time go in, segments, events and
// deadlines come out. All memory is allocated by the constructor.
//
// Not thread-safe: an engine has one owner at a time, and engines share nothing. Each call that takes the time must
// give one that is not before that of the last call.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "prov/vma/src/inet/base/flow_table.hpp"
#include "prov/vma/src/inet/base/next_hops.hpp"
#include "prov/vma/src/inet/base/timers.hpp"
#include "prov/vma/src/inet/tcp/connection.hpp"
#include "prov/vma/src/inet/tcp/gro.hpp"
#include "prov/vma/src/inet/tcp/handover.hpp"
#include "prov/vma/src/inet/tcp/time_wait.hpp"
#include "prov/vma/src/inet/wire/packet.hpp"
#include "prov/vma/src/inet/wire/send_offloads.hpp"

namespace vma::inet {

struct ConnectionId {
    std::uint32_t index = ~0U;
    std::uint32_t generation = 0;

    bool operator==(const ConnectionId &) const = default;
};

struct ListenerId {
    std::uint32_t index = ~0U;
    std::uint32_t generation = 0;

    bool operator==(const ListenerId &) const = default;
};

// What next_event() tells; several may come in one.
inline constexpr std::uint32_t kConnected = 1;    // connect() has come through
inline constexpr std::uint32_t kReadable = 2;     // bytes have come, or the peer's end of them
inline constexpr std::uint32_t kWritable = 4;     // there is room again after send() took less than all
inline constexpr std::uint32_t kPeerFinished = 8; // FIN
inline constexpr std::uint32_t kFailed = 16;      // it has ended with an error: error() tells
inline constexpr std::uint32_t kGone = 32;        // both directions are finished, and acknowledged
inline constexpr std::uint32_t kAcceptable = 64;  // of a listener
inline constexpr std::uint32_t kUrgent =
    128; // of one that another TCP has given: urgent data, which only that one has a place for

struct TcpEvent {
    std::uint32_t what = 0;
    ConnectionId connection; // or
    ListenerId listener;     // of kAcceptable
    std::uint64_t user = 0;
};

// What the layers below need for a segment.
struct TcpOut {
    static constexpr std::size_t kMoved =
        24; // bytes of output()'s room that are left behind a segment that is to be cut

    std::size_t length = 0;         // of the segment; its checksum is in place, or
    std::uint16_t segment_size = 0; // bytes of data: the device is to cut it into segments of so many. 0: it is one
    bool partial_sum = false;       // the field holds the sum of the pseudo-header, and the device does the rest
    IpAddress source;
    IpAddress target;
    NextHopIndex path = kNoNextHop; // or, for who has no connection,
    Mac mac;
    std::uint16_t vlan = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 64;
};

struct TcpLimits {
    std::uint32_t connections = 1024;
    std::uint32_t listeners = 64;
    std::uint32_t time_waits = 8192;
    std::uint32_t paths = 1024;
    std::uint32_t blocks = 16384;
    unsigned block_shift = 12;
    std::uint32_t sent = 32768;     // segments under way, of all connections
    std::uint32_t replies = 256;    // resets, cookies and the like that wait to be sent
    std::uint32_t gro_streams = 32; // flows whose segments gather() merges at a time, at most Gro::kMostPieces; 0: none
};

struct TcpCounters {
    std::uint64_t in = 0, out = 0;
    std::uint64_t merged = 0;    // of `in`: segments that were taken as a part of a longer one
    std::uint64_t malformed = 0; // no segment, or a wrong checksum
    std::uint64_t unmatched = 0; // nobody's: answered by a reset
    std::uint64_t out_of_window = 0;
    std::uint64_t old_timestamps = 0;                  // RFC 7323, 5 (PAWS)
    std::uint64_t bad_acks = 0;                        // RFC 5961, 5
    std::uint64_t challenges = 0, challenges_held = 0; // RFC 5961, 7
    std::uint64_t resets_in = 0, resets_out = 0;
    std::uint64_t retransmissions = 0, timeouts = 0, tail_probes = 0, recoveries = 0, undone = 0;
    std::uint64_t out_of_order = 0, duplicates = 0;
    std::uint64_t no_memory = 0; // data that the pool had no room for: the peer sends it again
    std::uint64_t syns = 0, syns_dropped = 0, cookies_out = 0, cookies_in = 0, cookies_bad = 0;
    std::uint64_t replies_dropped = 0;
    std::uint64_t time_waits_evicted = 0;
};

class Tcp
{
public:
    // `secret`: random, for sequence numbers (RFC 6528), cookies and the tables. The time now is asked for, and nothing
    // depends on it.
    Tcp(const TcpLimits &limits, const HashKey &secret, Nanos now);

    NextHops &next_hops() { return next_hops_; }
    const NextHops &next_hops() const { return next_hops_; }
    void set_offloads(const SendOffloads &offloads) // of the device; at first it has none
    {
        offloads_ = offloads;
        offloads_.segment_limit = std::min(offloads.segment_limit, kMostSegmented);
    }

    // ---- what the network brings (input.cpp) -----------------------------------------------------------------
    void input(Nanos now, const Packet &packet);
    // The same for one of several that came together (runs.cpp): what it says may be put off until flush(), and so long
    // the bytes of the packet stay where they are, and nothing but gather(), input() and flush() is called.
    void gather(Nanos now, const Packet &packet);
    void flush(Nanos now);
    // Nobody answers for the next hop: who has waited for it for some time hears EHOSTUNREACH, or later, when it ends
    // by a time-out.
    void next_hop_failed(Nanos now, NextHopIndex path);
    void next_hop_changed(Nanos now, NextHopIndex path); // link address or MTU: who waited goes on
    // What ICMP says, its form checked by the caller (RFC 1191, 8201; 5461, 5927). True: the quoted bytes are under
    // way, so it may be believed.
    bool too_big(Nanos now, const Flow &flow, Seq quoted, std::uint16_t mtu);
    void unreachable(Nanos now, const Flow &flow, Seq quoted, int error, bool hard);

    // ---- what the stack wants to send (output.cpp) -----------------------------------------------------------
    // Writes one segment to `out`, which has room for an MTU. False: there is nothing to send now.
    bool output(Nanos now, std::span<std::uint8_t> out, TcpOut &meta);
    bool wants_output() const { return ready_.head != kNobody || replies_used_ != 0; }

    // ---- time (timers.cpp) --------------------------------------------------------------------------------------
    Nanos deadline() const; // when advance() is due; it may find that nothing is
    void advance(Nanos now);

    // ---- calls of the program (calls.cpp); errors are negative errno values ------------------------------------
    int listen(const Endpoint &local, std::uint32_t backlog, const TcpSettings &settings, std::uint64_t user,
               ListenerId &id);
    void set_backlog(ListenerId id, std::uint32_t backlog);
    void unlisten(Nanos now, ListenerId id); // who waits in its queue is reset
    bool accept(ListenerId id, ConnectionId &connection);

    // Both ends must be given. The path is next_hops().use(remote), which the connection then owns.
    int connect(Nanos now, const Flow &flow, NextHopIndex path, const TcpSettings &settings, std::uint64_t user,
                ConnectionId &id);

    // Bytes taken; -EAGAIN: no room (kWritable comes), -EPIPE after shutdown, or the connection's error, told once.
    std::int64_t send(Nanos now, ConnectionId id, std::span<const std::uint8_t> data);

    // Bytes read; 0: the peer has finished; -EAGAIN: nothing there yet (kReadable comes).
    std::int64_t receive(Nanos now, ConnectionId id, std::span<std::uint8_t> out, bool peek = false);

    // The same without a copy, as far as it lies in one piece: `piece` stays as it is until arena().give_back(),
    // whatever becomes of the connection and of this. -ENOBUFS: a quarter of the memory is lent, receive() copies.
    std::int64_t lend(Nanos now, ConnectionId id, std::size_t most, std::span<const std::uint8_t> &piece);
    BlockArena &arena() { return blocks_.arena(); }
    void collect() { blocks_.collect(); } // what was given back

    int shutdown(Nanos now, ConnectionId id); // no more will be sent
    void close(Nanos now, ConnectionId id);   // the id is void; what was sent still arrives (RFC 1122, 4.2.2.13)
    void abort(Nanos now, ConnectionId id);   // the same, with a reset
    int settle(Nanos now, ConnectionId id, const TcpSettings &settings); // changes those that may be changed

    // ---- connections of another TCP (handover.cpp) -----------------------------------------------------------------
    // Carries on a connection: `queued` bytes were taken by the other TCP and not yet acknowledged, `unread` ones are
    // for the program. The path as of connect(). 0; -EINVAL: it contradicts itself; -EADDRINUSE: the flow is known;
    // -ENOBUFS: a queue is longer than most_adopted(), or there is no memory.
    std::size_t most_adopted() const { return ByteQueue::most(blocks_); } // bytes of a queue
    int adopt(Nanos now, const TcpHandover &handover, std::span<const std::uint8_t> queued,
              std::span<const std::uint8_t> unread, NextHopIndex path, const TcpSettings &settings, std::uint64_t user,
              ConnectionId &id);
    // The other TCP has sent more meanwhile: up to there.
    void adopt_sent(Nanos now, ConnectionId id, Seq nxt);
    // The way back: describe(), copy both queues, of which unread are readable() bytes, forget(). -EBADF; -ENOTCONN: it
    // is not open for sending (any more), the rest is told nevertheless.
    int describe(Nanos now, ConnectionId id, TcpHandover &handover) const;
    std::size_t queued(ConnectionId id) const; // bytes that send() took and nobody has acknowledged
    void copy_queued(ConnectionId id, std::size_t offset, std::span<std::uint8_t> out) const; // no more than there are
    void copy_unread(ConnectionId id, std::size_t offset, std::span<std::uint8_t> out) const;
    // Without a word to the peer, and what still comes of it is not answered either; the id is void.
    void forget(Nanos now, ConnectionId id);
    void ignore(Nanos now, const Flow &flow); // what comes of a flow that is somebody else's; unless it is known here

    const Connection *find(ConnectionId id) const; // nullptr: closed
    bool knows(const Flow &flow);                  // also after close(): until it is out of TIME-WAIT
    void set_user(ConnectionId id, std::uint64_t user);
    int take_error(ConnectionId id); // errno value, told once; 0: none
    std::size_t readable(ConnectionId id) const;
    std::size_t room(ConnectionId id) const;

    bool next_event(TcpEvent &event);

    // Sees each change before it is made; for tests.
    using StateHook = void (*)(void *context, const Connection &c, TcpState next);
    void set_state_hook(StateHook hook, void *context)
    {
        state_hook_ = hook;
        state_hook_context_ = context;
    }

    const TcpCounters &counters() const { return counters_; }
    std::uint32_t open_connections() const { return limits_.connections - free_connections_; }
    const BlockPool &blocks() const { return blocks_; }

private:
    static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
    static constexpr std::uint32_t kTimeWaitBit = 1U << 31; // in values of the flow table

    struct Listener {
        Endpoint local;
        TcpSettings settings;
        std::uint32_t generation = 0;
        bool used = false;
        std::uint64_t user = 0;
        std::uint32_t backlog = 0;
        std::uint32_t half_open = 0;
        std::uint32_t waiting = 0; // for accept()
        Nanos syns_until = 0;      // when the SYNs that were heard are worth their time
        std::uint32_t head = kNobody;
        std::uint32_t tail = kNobody;
        std::uint32_t next_event = kNobody;
        bool has_event = false;
    };

    // A segment without a connection.
    struct Reply {
        Flow flow;
        Segment segment;
        Mac mac;
        std::uint16_t vlan = 0;
    };

    struct List { // of connections, by one of their links
        std::uint32_t head = kNobody;
        std::uint32_t tail = kNobody;
    };

    struct Ack { // what an acknowledgement has brought
        std::uint32_t delivered = 0;
        std::uint32_t acked = 0; // by the cumulative part
        Nanos rtt = kNever;      // of the youngest segment that was sent once
        bool dsack = false;
        bool sacked = false;
        bool duplicate = false;
        bool lost = false; // segments were found lost
    };

    // ---- table.cpp: connections and lists
    Connection *get(ConnectionId id);
    ConnectionId id_of(const Connection &c) const;
    Connection *find_flow(const Flow &flow, std::uint32_t &value, std::uint32_t &hash);
    Connection *open_slot(const Flow &flow, std::uint32_t hash, const TcpSettings &settings);
    void free_slot(Connection &c);
    void set_state(Connection &c, TcpState state);
    void leave_table(Connection &c);
    std::uint32_t push_time_wait(const TimeWait &entry);
    void enter_time_wait(Connection &c, Nanos now);
    void expire_time_waits(Nanos now);
    void link(List &list, Link Connection::*which, Connection &c);
    void unlink(List &list, Link Connection::*which, Connection &c);
    void schedule(Connection &c);
    void tell(Connection &c, std::uint32_t events);
    void tell(Listener &l);
    std::uint32_t number(const Connection &c) const { return static_cast<std::uint32_t>(&c - connections_.get()); }
    Listener *find_listener(const Endpoint &local);
    static bool admits_syn(Listener &l, Nanos now);
    void enqueue_accept(Listener &l, Connection &c);
    void fail(Connection &c, int error);
    void end(Connection &c); // both directions are done
    void send_reset(const Connection &c);
    Reply reply_of(const Connection &c, std::uint8_t flags, Seq seq) const;
    bool reply(const Reply &r); // false: too many wait

    std::size_t spare_for_sending() const;
    void feed_starved();
    void records_freed();

    // ---- handover.cpp
    bool revive(std::uint32_t value, std::uint32_t hash);
    void take_agreed(Connection &c, const TcpHandover &handover, Nanos now);
    bool record_sent(Connection &c, Seq nxt, Nanos now);
    bool take_queues(Connection &c, const TcpHandover &handover, std::span<const std::uint8_t> queued,
                     std::span<const std::uint8_t> unread, Nanos now);

    // ---- open.cpp: the handshake
    void passive_open(Nanos now, const Packet &packet, const Segment &segment, const Flow &flow, std::uint32_t hash);
    void syn_sent(Connection &c, const Segment &segment, Nanos now);
    bool complete_open(Connection &c, const Segment &segment, Nanos now);
    void take_syn(Connection &c, const Segment &segment, Nanos now);
    void agree(Connection &c, const TcpOptions &options);
    void established(Connection &c, Nanos now);
    Seq initial_sequence(const Flow &flow, Nanos now) const;
    void send_cookie(const Packet &packet, const Segment &segment, const Flow &flow, const Listener &l, Nanos now);
    bool is_cookie(const Segment &segment, const Flow &flow, Nanos now) const;
    Connection *take_cookie(const Packet &packet, const Segment &segment, const Flow &flow, std::uint32_t hash,
                            Nanos now);
    std::uint32_t cookie(const Flow &flow, Seq peer, std::uint64_t minute) const;
    void set_mss(Connection &c);
    std::uint16_t offered_mss(const Connection &c) const;
    std::uint8_t shift_for(const TcpSettings &settings) const;

    // ---- runs.cpp
    void take_run(Nanos now, const Gro::Run &run);
    std::uint8_t take_piece(Segment &segment, std::uint8_t index) const;
    bool is_awaited(const Connection &c, const Gro::Run &run) const;
    void take_merged(Connection &c, const Gro::Run &run, Nanos now);

    // ---- input.cpp
    bool read(const Packet &packet, Segment &segment);
    void take(Nanos now, const Packet &packet, const Segment &segment);
    void note_heard(Connection &c, const Segment &segment, Nanos now);
    void leave_urgent(Connection &c);
    void process(Connection &c, const Segment &segment, Nanos now, std::uint8_t ecn);
    void process_time_wait(std::uint32_t index, const Packet &packet, const Segment &segment, const Flow &flow,
                           std::uint32_t hash, Nanos now);
    void refuse(const Packet &packet, const Segment &segment, const Flow &flow);
    bool check_timestamps(Connection &c, const Segment &segment, Nanos now);
    bool check_sequence(Connection &c, const Segment &segment, Nanos now);
    bool check_ack(Connection &c, const Segment &segment, Nanos now);
    void challenge(Connection &c, Nanos now);
    bool may_answer(Connection &c, const Segment &segment, Nanos now);

    // ---- receive.cpp: the peer's data
    void take_data(Connection &c, const Segment &segment, Nanos now, std::uint8_t ecn);
    void note_marks(Connection &c, const Segment &segment, std::uint8_t ecn);
    void note_size(Connection &c, std::size_t len);
    void take_in_order(Connection &c, std::span<const std::uint8_t> data);
    void extend_input(Connection &c, std::size_t len);
    bool take_out_of_order(Connection &c, Seq seq, std::span<const std::uint8_t> data);
    void join_ranges(Connection &c);
    void take_fin(Connection &c, Nanos now);
    void want_ack(Connection &c, std::size_t len, bool at_once, Nanos now);
    bool count_unacked(Connection &c, std::size_t len);
    void ask_for_ack(Connection &c, bool at_once, Nanos now);
    std::uint32_t window_of(const Connection &c) const; // what may be advertised now
    void release_input(Connection &c);
    static std::int64_t nothing_to_read(Connection &c);
    void consume(Nanos now, Connection &c, std::size_t n);

    // ---- recovery.cpp: acknowledgements, losses
    void take_ack(Connection &c, const Segment &segment, Nanos now);
    void take_window(Connection &c, const Segment &segment);
    void advance_una(Connection &c, Seq ack, Nanos now, Ack &work);
    void take_sacks(Connection &c, const Segment &segment, Nanos now, Ack &work);
    void take_sack(Connection &c, const SeqRange &block, Nanos now, Ack &work);
    void delivered(Connection &c, const Sent &sent, Nanos now, Ack &work);
    void rack_loss(Connection &c, Nanos now, Ack &work);
    Nanos reorder_window(const Connection &c) const;
    void count_duplicates(Connection &c, const Segment &segment, Ack &work);
    void enter_recovery(Connection &c, Nanos now);
    void leave_recovery(Connection &c, Nanos now);
    bool try_undo(Connection &c, const Segment &segment, Nanos now);
    void prr(Connection &c, const Ack &work);
    void answer_tail_probe(Connection &c, const Segment &segment, const Ack &work, Nanos now);
    void answer_ecn(Connection &c, Nanos now);

    // ---- timers.cpp
    void set(Connection &c, TcpTimer timer, Nanos at);
    void fire(Connection &c, Nanos now);
    void set_alarm(Connection &c, Nanos now);
    void alarm(Connection &c, Nanos now);
    void timed_out(Connection &c, Nanos now);
    void probe_window(Connection &c, Nanos now);
    void keepalive(Connection &c, Nanos now);
    bool gave_up(const Connection &c, Nanos now) const;
    void syn_timed_out(Connection &c, Nanos now);

    // ---- output.cpp
    std::size_t emit(Connection &c, Nanos now, std::span<std::uint8_t> out);
    std::size_t emit_syn(Connection &c, Nanos now, std::span<std::uint8_t> out);
    std::size_t emit_again(Connection &c, Nanos now, std::span<std::uint8_t> out);
    std::size_t emit_new(Connection &c, Nanos now, std::span<std::uint8_t> out);
    bool record_new(Connection &c, std::uint32_t len, bool fin, Nanos now, Segment &segment);
    std::uint32_t append_segments(Connection &c, std::uint32_t size, std::uint32_t most, Nanos now, Segment &segment);
    std::size_t emit_tail_probe(Connection &c, Nanos now, std::span<std::uint8_t> out);
    std::size_t emit_probe(Connection &c, Nanos now, std::span<std::uint8_t> out);
    std::size_t emit_ack(Connection &c, Nanos now, std::span<std::uint8_t> out);
    std::size_t write(Connection &c, Segment &segment, std::size_t len, Nanos now, std::span<std::uint8_t> out);
    void write_data(const Connection &c, const Segment &segment, std::size_t len, std::size_t header,
                    std::uint8_t *out) const;
    void write_unsummed_data(const Connection &c, const Segment &segment, std::size_t len, std::size_t header,
                             std::uint8_t *out) const;
    std::uint32_t sendable(Connection &c, Nanos now, std::uint32_t mss, bool probe, bool &fin);
    std::uint32_t in_network(const Connection &c) const;
    bool window_allows(const Connection &c, std::uint32_t len) const;
    bool paced(Connection &c, Nanos now);
    std::uint32_t wait_for_window(Connection &c, Nanos now);
    std::uint32_t segment_room(const Connection &c, std::span<std::uint8_t> out) const;
    std::uint32_t segment_limit(const Connection &c, std::span<std::uint8_t> out) const;
    unsigned sacks_due(const Connection &c) const;
    std::uint32_t stamp(const Connection &c, Nanos now) const;
    bool output_reply(std::span<std::uint8_t> out, TcpOut &meta);

    const TcpLimits limits_;
    const HashKey secret_;
    BlockPool blocks_;
    SentPool sent_;
    NextHops next_hops_;
    Timers timers_;
    FlowTable flows_;
    TimeWaits time_waits_;
    std::unique_ptr<Connection[]> connections_;
    std::unique_ptr<Listener[]> listeners_;
    std::unique_ptr<Reply[]> replies_;
    Gro gro_;
    std::uint32_t replies_from_ = 0;
    std::uint32_t replies_used_ = 0;
    std::uint32_t free_connections_;
    std::uint32_t free_head_ = kNobody; // linked by `ready`
    std::uint32_t fresh_ = 0;
    bool records_wanted_ = false;
    bool starved_ = false; // somebody had less memory than its own limit allows
    List ready_;           // who may have something to send
    List events_;
    std::uint32_t listener_event_head_ = kNobody;
    Nanos cookies_until_ = 0; // those that are out may come back
    SendOffloads offloads_;
    struct Left { // by write(), to the device
        std::uint32_t segments = 1;
        std::uint16_t segment_size = 0;
        bool sum = false;
    };
    Left left_;
    TcpCounters counters_;
    StateHook state_hook_ = nullptr;
    void *state_hook_context_ = nullptr;
};

} // namespace vma::inet
