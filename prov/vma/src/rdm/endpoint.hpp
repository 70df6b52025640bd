// SPDX-License-Identifier: BSD-2-Clause
// A reliable-datagram endpoint (FI_EP_RDM): messages with and without tags, remote memory access and atomics, between
// the processes of a host over the rings of the local device, with other hosts over another provider's endpoint.
// doc/rdm.md says how it works.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include "local/ring/endpoint.hpp"
#include "ofi/av.hpp"
#include "ofi/memory/mr.hpp"
#include "rdm/match.hpp"
#include "rdm/network.hpp"
#include "rdm/operation.hpp"
#include "rdm/packet.hpp"
#include "rdm/peer.hpp"
#include "rdm/peer_srx.hpp"
#include "rdm/pool.hpp"
#include "rdm/receive.hpp"

namespace vma::rdm {

// What a call sends.
struct Outgoing {
    const iovec *iov;
    std::size_t count;
    const std::uint64_t *data; // FI_REMOTE_CQ_DATA, or nullptr
    fi_addr_t to;
    std::uint64_t tag;
    void *context;
    std::uint64_t flags; // of the operation
    bool tagged;
    bool completion;
};

// What a call wants to receive.
struct Wanted {
    const iovec *iov;
    std::size_t count;
    fi_addr_t from;
    std::uint64_t tag;
    std::uint64_t ignore;
    void *context;
    std::uint64_t flags;
    bool tagged;
};

// What a call does with a peer's memory.
struct Access {
    bool write;
    const iovec *iov;
    std::size_t count;
    fi_addr_t to;
    const fi_rma_iov *remote;
    std::size_t remote_count;
    const std::uint64_t *data;
    void *context;
    std::uint64_t flags;
    bool completion;
};

struct AtomicAccess {
    std::uint8_t kind; // AtomicKind
    fi_datatype type;
    fi_op op;
    const fi_ioc *operand;
    std::size_t operand_count;
    const fi_ioc *compare;
    std::size_t compare_count;
    fi_ioc *result;
    std::size_t result_count;
    fi_addr_t to;
    const fi_rma_ioc *remote;
    std::size_t remote_count;
    void *context;
    std::uint64_t flags;
    bool completion;
};

// All private functions with `lock_` held. It is taken before a queue's lock; who has that already only tries to, and
// comes again.
class RdmEndpoint final : public local::RingEndpoint, public local::Poller
{
public:
    RdmEndpoint(ofi::Domain &domain, const fi_info &info) noexcept;
    ~RdmEndpoint();
    static RdmEndpoint &from(struct fid *fid) noexcept { return static_cast<RdmEndpoint &>(RingEndpoint::from(fid)); }
    static RdmEndpoint &from(fid_ep *fid) noexcept { return from(&fid->fid); }

    // The calls of the fi_ops tables: 0 or a negative fi_errno.
    int bind(struct fid *what, std::uint64_t flags) noexcept;
    ssize_t send(const Outgoing &out) noexcept;
    ssize_t post(const Wanted &wanted) noexcept;
    ssize_t cancel(void *context) noexcept;
    ssize_t access(const Access &access) noexcept;
    ssize_t atomic(const AtomicAccess &access) noexcept;
    int set_option(int name, const void *value, std::size_t length) noexcept;
    int get_option(int name, void *value, std::size_t *length) noexcept;
    // Before it is enabled, for tests: as where the kernel allows no single copy.
    void forbid_single_copy() noexcept { may_reach_ = false; }
    // Likewise: as if each address, this host's own and loopback's too, were another host's.
    void take_all_for_remote() noexcept { all_remote_ = true; }
    // Whether other hosts are reached.
    bool has_network() const noexcept { return network_ != nullptr; }

    // What the owner of a shared receive context says of a message that waits with it: to be received, as the entry has
    // buffers now, or not at all.
    void start_waiting(ofi::peer::RxEntry *entry, Message &message) noexcept;
    void discard_waiting(Message &message) noexcept;

    // For RingEndpoint, with the queue's lock held.
    void on_bell() noexcept override;
    bool begin_visit(local::Inlet &inlet) noexcept override;
    void end_visit(local::Inlet &inlet) noexcept override;
    Took take(local::Inlet &inlet, local::KeptRing &ring, const local::Arrived &arrived) noexcept override;
    void made_room(local::Inlet &inlet) noexcept override;
    void poll() noexcept override;
    bool may_sleep() noexcept override;

private:
    int prepare() noexcept override;
    void joined(local::Inlet &inlet) noexcept override;
    void left(local::Inlet &inlet) noexcept override;
    void attend() noexcept override;

    // Of messages that came without a receive: bytes. Beyond it the peers' rings stand still, as do the peers then,
    // unless the program waits for something that may lie behind them.
    static constexpr std::uint64_t kMostHeld = std::uint64_t{64} << 20;

    struct Place {
        std::uint32_t generation = 0; // of the address vector's
        Peer *peer = nullptr;
    };
    // One of a peer's packets, its header copied and its parts found.
    struct Incoming {
        local::Inlet *inlet; // nullptr: it is from another host
        Peer &peer;
        Packet packet;
        const std::byte *body;
        std::size_t length; // of the body
        bool has_data;
        std::uint64_t data;

        fi_addr_t source() const noexcept { return inlet != nullptr ? inlet->source() : peer.net->source; }
        Whom whom() const noexcept { return {peer, inlet != nullptr ? inlet->identity() : peer.net->id}; }
        Peer::Sender &sender() const noexcept { return *peer.sender_of(inlet); }
    };

    // Peers (peers.cpp).
    Peer *peer_of(fi_addr_t address) noexcept
    {
        if (address < places_.size()) [[likely]] {
            const Place &place = places_[address];
            if (place.peer != nullptr && place.generation == av_->generation_of(address)) [[likely]]
                return place.peer;
        }
        return new_peer(address);
    }
    Peer *new_peer(fi_addr_t address) noexcept;
    Peer *peer_at(const ofi::Address &address) noexcept;
    // Whether it can be written to now: 0, -FI_EAGAIN, or why not.
    int ready(Peer &peer, local::Bell &bell) noexcept
    {
        if (peer.greeted && !peer.has_news() && !peer.has_work()) [[likely]]
            return 0;
        return make_ready(peer, bell);
    }
    int make_ready(Peer &peer, local::Bell &bell) noexcept;
    int greet(Peer &peer, local::Bell &bell) noexcept;
    int find_successor(Peer &peer, local::Bell &bell) noexcept;
    // Greets it if that was not done yet. True: there is nobody at its address.
    bool is_nobody(Peer &peer, local::Bell &bell) noexcept
    {
        const int error = peer.greeted ? 0 : greet(peer, bell);
        return error != 0 && error != -FI_EAGAIN;
    }
    void look_after(Peer &peer) noexcept;
    void end_predecessor(Peer &peer, std::uint64_t identity) noexcept;
    void lost(Peer &peer) noexcept;
    void fail_waiting(Peer &peer, std::uint64_t identity) noexcept;
    void drop_streams(Peer &peer, const local::Inlet *inlet) noexcept;

    // Other hosts (network_peers.cpp).
    int open_network() noexcept;
    void close_network() noexcept;
    Peer *network_peer(const ofi::Address &address) noexcept;
    int greet_network(Peer &peer) noexcept;
    Peer *network_sender(const NetworkHead &head) noexcept;
    bool is_next(const NetworkHead &head, Peer &peer) noexcept;
    void tell(Peer &peer, PacketOp op, std::uint64_t size) noexcept;
    Took take_from_network(NetworkBuffer &buffer) noexcept;
    void lose_network(Peer &peer) noexcept;
    void ask_after_silent() noexcept;
    void finish_left(Peer &peer) noexcept;
    void progress_network() noexcept;

    // Writing (write.cpp).
    ssize_t send_locked(const Outgoing &out, std::uint64_t length, local::Bell &bell) noexcept;
    ssize_t send_eager(Peer &peer, const Outgoing &out, std::uint64_t length, local::Bell &bell) noexcept;
    ssize_t put_eager(Peer &peer, const Outgoing &out, std::uint64_t length, local::Bell &bell) noexcept;
    // 0, or -FI_EAGAIN or -FI_ECONNRESET for refused() to look into, without the queue's lock.
    ssize_t write_eager(Peer &peer, const Outgoing &out, std::uint64_t length, local::Bell &bell) noexcept;
    ssize_t send_operation(Peer &peer, const Outgoing &out, std::uint64_t length, local::Bell &bell) noexcept;
    Operation *begin(Peer &peer, void *context, bool completion, std::uint64_t cq_flags, ofi::Cntr *counter) noexcept;
    // The operation goes on, or, where its first record has no room, is gone: -FI_EAGAIN or an error.
    ssize_t start(Operation &operation, local::Bell &bell) noexcept;
    void append(Operation &operation, local::Bell &bell) noexcept;
    void written(Operation &operation) noexcept;
    bool write_next(Operation &operation, local::Bell &bell) noexcept;
    bool write_piece(Operation &operation, local::Bell &bell) noexcept;
    bool write_whole(Operation &operation, local::Bell &bell) noexcept;
    ssize_t refused(Peer &peer, local::Bell &bell) noexcept;
    int ready_to_wait(Peer &peer, local::Bell &bell) noexcept;
    void flush(Peer &peer, local::Bell &bell) noexcept;
    bool write_reply(Peer &peer, Reply &reply, local::Bell &bell) noexcept;
    bool write_read_bytes(Peer &peer, Reply &reply, local::Bell &bell) noexcept;
    void publish(Peer &peer, std::size_t length, bool has_data, std::uint64_t data, local::Bell &bell) noexcept;
    ssize_t access_locked(const Access &access, const TargetList &targets, std::uint64_t length,
                          local::Bell &bell) noexcept;
    ssize_t atomic_locked(const AtomicAccess &access, const TargetList &targets, std::size_t elements,
                          local::Bell &bell) noexcept;
    void reply(const Whom &whom, Reply &&reply) noexcept;
    void answer(const Whom &whom, std::uint32_t id, int error) noexcept { answer_with(whom, id, error, nullptr, 0); }
    void answer_with(const Whom &whom, std::uint32_t id, int error, const std::byte *bytes,
                     std::size_t length) noexcept;
    void make_busy(Peer &peer) noexcept;
    void flush_busy() noexcept;
    void set_polled(bool wanted) noexcept;
    void finish(Operation &operation, int error) noexcept;
    void release(Operation &operation) noexcept;

    // Receiving (receive.cpp).
    Receive *make_receive(const Wanted &wanted, const Peer *from, std::uint64_t length) noexcept;
    ssize_t post_new(const Wanted &wanted, const Peer *from, std::uint64_t length) noexcept;
    ssize_t peek(const Wanted &wanted, const Peer *from) noexcept;
    ssize_t take_claimed(const Wanted &wanted) noexcept;
    void tell_found(const Message &message, const Wanted &wanted) noexcept;
    void discard(Message &message) noexcept;
    // Brings what a message has, or will have, into a receive; where it is complete by that, it is gone.
    void meet(Receive &receive, Message &message) noexcept;
    void land(Receive &receive, std::uint64_t length, Landing &landing) noexcept;
    void landed(const Landing &landing, const Told &what, int error) noexcept;
    int pull(const Message &message, const Landing &landing) noexcept;
    void ask_for(Message &message) noexcept;     // its sender announced it
    void link_stream(Message &message) noexcept; // into its peer's
    void unlink_stream(Message &message) noexcept;
    void end_message(Message &message, int error) noexcept;
    void let_go(Message &message) noexcept; // of what it holds
    void free_message(Message &message) noexcept;
    Matcher &matcher(bool tagged) noexcept { return tagged ? tagged_ : untagged_; }

    // What arrives (arrive.cpp).
    Took take_from(Incoming &in) noexcept;
    Took take_packet(const Incoming &in) noexcept;
    Took take_hello(const Incoming &in) noexcept;
    Took take_greeted(const Incoming &in) noexcept;
    Took take_message(const Incoming &in) noexcept;
    // nullptr: there is no room for it now.
    Message *keep_message(const Incoming &in, Message::Form form, std::uint64_t bytes) noexcept;
    Took take_first(const Incoming &in) noexcept;
    Took take_piece(const Incoming &in) noexcept;
    Took take_offer(const Incoming &in) noexcept;
    Operation *waiting_operation(const Incoming &in) noexcept;
    Took take_answer(const Incoming &in) noexcept;
    Took take_announced(const Incoming &in) noexcept;
    Took take_go(const Incoming &in) noexcept;
    Took take_broken(const Incoming &in) noexcept;
    void deliver(Receive &receive, const Incoming &in) noexcept;
    void fill(Message &message, const Incoming &in) noexcept;
    Receive *find_receive(const Incoming &in) noexcept;
    bool has_room_for(std::uint64_t bytes) noexcept;
    bool awaits_something() noexcept;
    void look_further() noexcept;
    ssize_t looked_into(ssize_t result) noexcept;
    bool has_to_wait_for_queue() const noexcept;

    // Matching and completions by an owner, fi_peer(3) (by_owner.cpp).
    class Outside;
    template <typename Call> void with_lock(Call &&call) noexcept;
    void describe(Message *message, const Incoming &in, Message::Form form, std::uint64_t bytes) noexcept;
    Took take_for_owner(const Incoming &in, Message::Form form, const BufferList *offered) noexcept;
    void matched_by_owner(const Incoming &in, Message &message, ofi::peer::RxEntry *entry) noexcept;
    void queue_with_owner(const Incoming &in, Message &message, ofi::peer::RxEntry *entry) noexcept;
    void refused_by_owner(const Incoming &in, Message &message, int error) noexcept;
    Receive *stand_for(ofi::peer::RxEntry *entry, bool tagged) noexcept;
    void fail_entry(ofi::peer::RxEntry *entry, const Message &message, int error) noexcept;
    void landed_by_owner(Receive &receive, const ofi::Completion &completion, std::uint64_t tag, bool ends) noexcept;
    void lose_for_owner(Message &message) noexcept;
    void tell_rx(const ofi::Completion &completion, std::uint64_t tag) noexcept;
    void tell_owner(local::Queue &queue, const ofi::Completion &completion, std::uint64_t tag) noexcept;
    ssize_t send_eager_for_owner(Peer &peer, const Outgoing &out, std::uint64_t length, local::Bell &bell) noexcept;
    ofi::Av::Watcher watcher() noexcept;
    void find_sources() noexcept;
    fi_addr_t source_of(const ofi::peer::RxEntry *entry) noexcept;
    void leave_owner() noexcept;

    // What peers do with our memory (target.cpp).
    Took take_write(const Incoming &in) noexcept;
    Took take_write_offer(const Incoming &in) noexcept;
    Took take_read(const Incoming &in) noexcept;
    Took take_atomic(const Incoming &in) noexcept;
    void written(const Incoming &in, const TargetList &targets, int error) noexcept;
    void count_access(const TargetList &targets, std::uint64_t access) noexcept;
    int copy_targets(const TargetList &targets, const Peer::Sender &sender, const BufferList &theirs,
                     bool to_them) noexcept;

    // Completions.
    void push_rx(const ofi::Completion &completion) noexcept;
    void push_own_rx(const ofi::Completion &completion) noexcept; // of who knows that the queue is no owner's
    void push_tx(const ofi::Completion &completion) noexcept;
    void push_deferred() noexcept;

    std::vector<Place> places_; // by fi_addr_t
    Matcher untagged_;
    Matcher tagged_;
    Pool<Receive> receives_;
    Pool<Message> messages_;
    Pool<Operation> operations_;
    unsigned visits_ = 0; // > 0: the thread that has `lock_` has the receiving queue's lock too
    bool closing_ = false;
    bool by_owner_ = false;  // receives end with an owner, and not in our queue alone
    PeerSrx *srx_ = nullptr; // whose owner matches
    std::size_t rx_size_;
    std::size_t tx_size_;
    std::size_t least_multi_;        // FI_OPT_MIN_MULTI_RECV
    std::uint64_t rings_joined_ = 0; // ever
    std::uint64_t held_ = 0;         // bytes of messages without a receive
    std::uint64_t most_held_ = kMostHeld;
    bool told_of_bound_ = false;
    bool told_of_strangers_ = false;
    bool directed_;         // FI_DIRECTED_RECV
    bool may_reach_ = true; // single copy is tried
    bool all_remote_ = false;
    bool accompanied_ = false; // the queues know each other
    std::vector<std::unique_ptr<Peer>> peers_;
    std::map<std::uint16_t, Peer *> by_port_;
    std::unique_ptr<Network> network_;                // nullptr: no other host is reached
    std::map<std::string, Peer *> by_address_;        // those on other hosts
    std::unordered_map<std::uint64_t, Peer *> by_id_; // of them, those that have said hello
    std::uint64_t asked_after_ = 0;                   // ns: when ask_after_silent() last went round
    // Protected by the receiving queue's lock.
    unsigned idle_polls_ = 0; // of the network, in a row
    bool flushing_ = false;   // somebody is busy
    bool polled_ = false;
    std::vector<Peer *> busy_; // something is left to write to them: with each read, as long as there is one
    std::vector<Message *> claimed_;
    core::Fifo<ofi::Completion> deferred_;       // of the transmit queue, whose lock another has
    MatchList<Arrival> waiting_;                 // messages that wait with the owner
    Arrival *asked_ = nullptr;                   // which of them it is likely to ask for next
    std::atomic<const void *> outside_{nullptr}; // the thread that has `lock_`, and is in a call of the owner's
    bool told_of_refusal_ = false;
    ofi::MrTable *mrs_ = nullptr;
    // What peers read to see that they reach us, as long as they may (local::CmaMark).
    std::atomic<std::uint64_t> nonce_;
    static_assert(sizeof nonce_ == sizeof(std::uint64_t));
};

} // namespace vma::rdm
