// SPDX-License-Identifier: BSD-2-Clause
// The completion queue of the local device. It looks at the slots of a few endpoints itself, is rung for the others,
// and goes round those that wait for their peer; so what an empty read costs does not depend on how many endpoints
// there are.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include "local/companions.hpp"
#include "local/doorbell.hpp"
#include "local/guests.hpp"
#include "local/lookout.hpp"
#include "local/pacing.hpp"
#include "local/ring/inlets.hpp"
#include "local/stamp.hpp"
#include "local/turns.hpp"
#include "ofi/cntr.hpp"
#include "ofi/cq.hpp"

namespace vma::local {

class Endpoint;
class Sender;

// Where a read puts completions that need not wait in the queue.
struct Sink {
    std::byte *out;
    std::size_t room;
    std::size_t taken = 0;
};

// Whether completions that wait to be read keep who asks from sleeping: not who waits for a counter, or reads another
// queue.
enum class Entries { count, pass };

// Whom the answer reaches: that a sender may try again, which is said once, is kept for who asked to send.
enum class Tell { caller, nobody };

struct Queue : ofi::Cq {
    static constexpr unsigned kActive = 4;

    explicit Queue(ofi::Domain &owner) noexcept : Cq(owner) {}
    int open() noexcept;

    // All below: with `lock` held, if they don't say otherwise.

    // A completion, also beyond the queue's size: who can wait asks entries.full() first.
    void push(const ofi::Completion &completion) noexcept
    {
        if (!entries.push(completion)) [[unlikely]]
            note_loss();
        if (armed) [[unlikely]]
            wake_sleepers();
    }

    // The receiving half of an endpoint. 0 or -FI_ENOSPC.
    int add(Endpoint &endpoint) noexcept;
    void remove(Endpoint &endpoint) noexcept;
    void leave_guest(Endpoint &endpoint) noexcept; // the doorbell of its link, if it has one
    // A sending half with operations under way.
    void watch(Sender &sender) noexcept;
    void unwatch(Sender &sender) noexcept;
    // The same, or until it is due, for one that waits for its time; its own lock is held too.
    void follow(Sender &sender) noexcept;
    // Rate limits (pacing.cpp). The first limited endpoint needs the timer: 0 or a negative errno.
    int open_timer() noexcept;
    void wait_until(PacedTimer &timer, std::uint64_t due) noexcept;

    // Takes in what arrived, in the order in which it was published, until the sink or the queue is full.
    template <fi_cq_format Format> void poll(Sink &sink) noexcept;
    // Consumes what an endpoint's slots hold, up to one that another endpoint's comes before.
    template <fi_cq_format Format> void visit(Endpoint &endpoint, Sink &sink) noexcept;

    template <fi_cq_format Format> static ssize_t read(fid_cq *fid, void *buffer, std::size_t count) noexcept;
    // `sources` may be nullptr.
    template <fi_cq_format Format>
    ssize_t read_with_sources(void *buffer, std::size_t count, fi_addr_t *sources) noexcept;
    // Reads nothing: arrivals go to the queue, and to its companions. Takes the lock.
    void progress() noexcept;
    void progress_alone() noexcept; // not to them
    void progress_companions() noexcept;
    // What reading is where the entries are an owner's: it tells of nothing.
    void progress_for_owner() noexcept;

    // Whether a sleeper would miss nothing. After `true` the wait descriptor becomes readable with the next event,
    // unless all who sleep do so at places, where they are woken; after `false`, `due` says whether it is (also) what a
    // rate limit has refused that may go now.
    bool arm(Entries which, Tell tell, bool *due = nullptr) noexcept;
    void disarm(bool readable = false) noexcept; // whether the wait descriptor stays so until the queue is armed again
    // The same for the queue and its companions, whose entries don't count: they are for who reads those. Takes the
    // locks.
    bool arm_all(Entries which = Entries::count, bool *due = nullptr) noexcept;
    void wake_sleepers() noexcept;
    // All that an endpoint's peer has published, for its end, and what others published before.
    void drain(Endpoint &endpoint) noexcept;
    // Looks at all endpoints as if each had been rung for, in case a bell was lost.
    void ring_all() noexcept;
    // Tells connection management about endpoints whose peers broke the rules. Takes the lock itself.
    void report_failures() noexcept;

    ofi::ProgressSource source() noexcept;

    Endpoint *active[kActive] = {}; // looked at directly, the one that was active last in front
    unsigned active_count = 0;
    // A heap of those that have something, the one with the earliest slot in front.
    struct Rung {
        std::uint64_t stamp;
        Endpoint *endpoint;
    };
    std::unique_ptr<Rung[]> rung;
    std::uint32_t rung_count = 0;
    // Stamps from before it tell the order: it is of the last look at all endpoints. Of a single one all do.
    static constexpr std::uint64_t kNoHorizon = UINT64_MAX;
    std::uint64_t horizon = 0;
    StampClock clock = StampClock::none;
    Endpoint *passed = nullptr; // could not go on in this read
    unsigned receivers = 0;     // endpoints that receive
    bool armed = false;         // somebody may sleep on the wait descriptor
    bool many_sleepers = false;
    const std::uint32_t *sleepers = nullptr; // FI_VMA_SLEEPERS
    bool signalled = false;
    Sender *waiting = nullptr;
    Endpoint *failed = nullptr;
    Endpoint *reporting = nullptr;
    unsigned reads = 0;
    Turns turns;
    Lookout lookout;                // for new senders, and the end of receivers
    unsigned watched_reads = 0;     // reads in which it was asked; those that find an entry at once are among them
    const void *armed_by = nullptr; // the thread
    Doorbell doorbell;
    GuestDoorbells guests{*this};
    std::uint32_t recent[kActive] = {}; // bits that rang last: with more than can be active, none of them is
    unsigned recent_at = 0;
    std::unique_ptr<Endpoint *[]> by_bit;
    std::uint32_t by_bit_size = 0;
    unsigned endpoints = 0;   // bound, receiving or sending
    unsigned ring_halves = 0; // halves of endpoints of whose peers sockets tell: who comes, who is gone
    Inlets inlets{*this};
    // The doorbell's descriptor, the endpoints' gates, and the timer of rate limits. It is opened when somebody wants
    // to sleep.
    core::UniqueFd wait_set;
    std::vector<int> gates;    // RingEndpoint::gate_
    bool untimed = false;      // FI_VMA_UNTIMED
    bool bare_wait_fd = false; // the program sleeps on the doorbell's descriptor alone
    Companions companions{*this};
    PacedWork paced;

    bool rung_for() const noexcept { return doorbell.rung() || guests.rung(); }
    bool rings_often(std::uint32_t bit) noexcept;
    void push_rung(Endpoint &endpoint) noexcept;
    int open_wait_set() noexcept;
    // A descriptor that wakes who sleeps on the queue, too: 0 or a negative errno.
    int watch_fd(int fd) noexcept;
    // A guest's bell: it joins the set that the program has, else -FI_EOPNOTSUPP.
    int watch_guest(int fd) noexcept;
    void unwatch_fd(int fd) noexcept { core::unwatch_fd(wait_set.get(), fd); }
    // The same for an endpoint's gate, which is watched once there is a set; -1: it has none.
    int add_gate(int fd) noexcept;
    void remove_gate(int fd) noexcept;
    int give_wait_fd(int &fd) noexcept;                  // to the program. 0 or a negative errno
    int count_by(const std::uint32_t *counter) noexcept; // FI_VMA_SLEEPERS. 0 or a negative errno
    int wait_fd() const noexcept { return wait_set ? wait_set.get() : doorbell.wake_fd(); }
    int sleep_fd() noexcept; // the provider's own threads sleep on it. Takes the lock

private:
    // What a look at the senders finds for who wants to sleep.
    struct News {
        bool some = false; // one may send again, or others are at it: read again
        bool due = false;  // what a rate limit has refused may go
    };

    template <fi_cq_format Format> void take_slots(Sink &sink, bool with_datagrams) noexcept;
    template <fi_cq_format Format> void take_from_only(Endpoint &endpoint, Sink &sink) noexcept;
    template <fi_cq_format Format> void serve(Endpoint &endpoint, Sink &sink) noexcept;
    bool look() noexcept;
    Endpoint *earliest() noexcept;
    static bool has_slot(const Endpoint &endpoint) noexcept;
    bool is_due(const Endpoint &endpoint) const noexcept; // and has not been stuck in this read
    bool can_go_on(const Endpoint &endpoint) const noexcept;
    std::uint64_t latest_in_turn() const noexcept;
    static std::uint64_t stamp_of(const Endpoint &endpoint) noexcept; // of its next slot
    void note_consumed(Endpoint &endpoint, unsigned slots) noexcept;
    void answer_doorbell() noexcept;
    void answer(Endpoint &endpoint) noexcept;
    void settle(Endpoint &endpoint) noexcept;
    void pop_rung(Endpoint &endpoint) noexcept;
    void take_out(Endpoint &endpoint) noexcept;
    void order(bool wanted) noexcept;
    bool grow(std::uint32_t bit) noexcept;
    bool anything(Entries which) noexcept;
    bool suspend() noexcept;
    void end_armed_read(bool found) noexcept;
    void activate(Endpoint &endpoint) noexcept;
    void touch(unsigned index) noexcept;
    bool others_sleep() noexcept;
    bool sleeps_by_descriptor() const noexcept;
    void deactivate(unsigned index) noexcept;
    void advance_senders(News *news, Tell tell) noexcept;
    void collect_due() noexcept;
    void enlist(Sender &sender) noexcept;
    void set_timer() noexcept;
    void give_back(Endpoint &endpoint) noexcept;
    void give_back_all() noexcept;
    void attend(Endpoint &endpoint) noexcept;
    [[gnu::cold]] static void note_loss() noexcept;
};

inline Queue &queue_of(fid_cq *fid) noexcept
{
    return static_cast<Queue &>(ofi::cq_of(fid));
}

extern fi_ops_cq owned_cq_ops; // of one with FI_PEER

int open_cq(ofi::Domain &domain, const fi_cq_attr *attr, fid_cq **cq, void *context) noexcept;

} // namespace vma::local
