// SPDX-License-Identifier: BSD-2-Clause
// Reading a completion queue: going round the endpoints, consuming their slots, and the calls of fi_ops_cq.
#include "core/kernel.hpp"
#include "local/queue.hpp"

#include <algorithm>
#include <poll.h>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "local/msg/arrival.hpp"
#include "ofi/cq_sread.hpp"
#include "ofi/ops.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

namespace {

constexpr unsigned kBurst = 64;         // slots of one endpoint before it is another's turn
constexpr unsigned kVisits = 1024;      // of endpoints, in one read
constexpr unsigned kSpaceCheck = 16;    // slots given back before we look whether the writer waits for one
constexpr unsigned kCmInterval = 65536; // empty reads between looks at connection management
constexpr unsigned kLookAtWriters = 64; // reads, where there always is something to take
constexpr unsigned kCompanions = 4; // reads that found nothing between looks at the other queues of the same endpoints

} // namespace

template <fi_cq_format Format> void Queue::visit(Endpoint &endpoint, Sink &sink) noexcept
{
    Receiver &rx = endpoint.receiver;
    if (sink.room && !sink.out)
        __builtin_unreachable(); // who gives no buffer has no room: for the analyzer, which can't know
    const std::uint64_t latest = latest_in_turn();
    SlotHeader header;
    for (unsigned done = 0; rx.slots.peek(header); ++done) {
        if (done == kBurst || (sink.out && entries.size() >= sink.room) || (done != 0 && stamp_of(endpoint) > latest))
            break;
        const bool region = header.op == SlotOp::region_inline || header.op == SlotOp::region_direct;
        if (region && header.flags == kSlotData && sink.room && entries.empty()) [[likely]] {
            std::uint64_t length = 0;
            if (!rx.apply_region(header, length)) [[unlikely]] {
                endpoint.fail("a write outside of the region");
                break;
            }
            rx.slots.consume();
            if (rx.remote_write_counter) [[unlikely]]
                rx.remote_write_counter->count();
            sink.out += ofi::write_entry<Format>(sink.out, rx.context, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
                                                 length, nullptr, header.data);
            --sink.room;
            ++sink.taken;
            continue;
        }
        const Consumed result = rx.consume(header);
        if (result == Consumed::done)
            continue;
        if (result == Consumed::lie)
            endpoint.fail("a malformed slot");
        break;
    }
    settle(endpoint);
}

// Tells the writer how far we are, and wakes it where it wants that.
void Queue::give_back(Endpoint &endpoint) noexcept
{
    Receiver &rx = endpoint.receiver;
    if (rx.slots.unpublished())
        rx.slots.publish();
    else if (!rx.slots.unchecked())
        return;
    else
        rx.slack = true; // nothing new came: time to look after the writer
    if (rx.ack_due) {
        rx.ack_due = false;
        core::full_fence();
        endpoint.wake_writer();
    }
    if (rx.slots.unchecked() >= kSpaceCheck || rx.slack || !endpoint.is_active) {
        rx.slack = false;
        if (rx.slots.writer_wants_space())
            endpoint.wake_writer();
    }
}

void Queue::give_back_all() noexcept
{
    for (unsigned i = 0; i < active_count; ++i) {
        if (active[i]->receiver.slots.unchecked())
            give_back(*active[i]);
    }
}

// The endpoint whose turn it is. Who rings often is looked at directly from then on.
template <fi_cq_format Format> void Queue::serve(Endpoint &endpoint, Sink &sink) noexcept
{
    if (endpoint.is_rung)
        pop_rung(endpoint);
    const SlotReader &slots = endpoint.receiver.slots;
    const std::uint32_t before = slots.next();
    if (can_go_on(endpoint))
        visit<Format>(endpoint, sink);
    note_consumed(endpoint, slots.next() - before);
    const bool open = endpoint.receiver.open.load(std::memory_order_relaxed);
    const bool stuck = slots.next() == before; // a queue that is full, a long copy: in the next read
    if (stuck)
        endpoint.passed_at = reads;
    const bool goes_on = has_slot(endpoint);
    if (endpoint.is_active)
        touch(static_cast<unsigned>(std::find(active, active + active_count, &endpoint) - active));
    else if (open && !armed && (endpoint.rings_often || active_count < kActive))
        activate(endpoint);
    if (!goes_on)
        return;
    if (!stuck) {
        push_rung(endpoint);
    } else if (!endpoint.is_active) {
        endpoint.is_rung = true; // its bit changes nothing until then
        endpoint.passed_next = passed;
        passed = &endpoint;
    }
}

// Where there is one endpoint, and no bell, nothing has to be put into an order.
template <fi_cq_format Format> void Queue::take_from_only(Endpoint &endpoint, Sink &sink) noexcept
{
    const SlotReader &slots = endpoint.receiver.slots;
    if (reads % kLookAtWriters == 0)
        give_back_all();
    horizon = kNoHorizon;
    std::uint32_t before = slots.next() - 1;
    for (unsigned i = 0; i < kVisits && slots.next() != before && is_due(endpoint); ++i) {
        if (sink.out && entries.size() >= sink.room)
            return;
        before = slots.next();
        visit<Format>(endpoint, sink);
        note_consumed(endpoint, slots.next() - before);
    }
}

template <fi_cq_format Format> void Queue::take_slots(Sink &sink, bool with_datagrams) noexcept
{
    ++reads;
    if (receivers == 1 && active_count == 1 && !rung_count && !rung_for() && !inlets.used()) [[likely]] {
        if (active[0]->receiver.slots.ready())
            take_from_only<Format>(*active[0], sink);
        else
            give_back_all();
        return;
    }
    horizon = 0;
    for (unsigned i = 0; i < kVisits && (!sink.out || entries.size() < sink.room); ++i) {
        Endpoint *const endpoint = earliest();
        if (i == 0 && (!endpoint || reads % kLookAtWriters == 0)) // they are not in a hurry
            give_back_all();
        if (!endpoint)
            break;
        if (with_datagrams && inlets.used())
            inlets.poll();
        serve<Format>(*endpoint, sink);
        if (!rung_count && (sink.taken || !entries.empty()))
            break; // the next read finds what has come since
    }
    while (passed) {
        Endpoint &endpoint = *passed;
        passed = endpoint.passed_next;
        endpoint.is_rung = false;
        push_rung(endpoint);
    }
}

template <fi_cq_format Format> void Queue::poll(Sink &sink) noexcept
{
    if (receivers == 0 && inlets.used()) [[likely]]
        ++reads; // nobody has slots
    else
        take_slots<Format>(sink, true);
    if (inlets.used()) {
        inlets.poll();
        if (rung_for())
            answer_doorbell();
    }
    if (!paced.wheel.empty()) [[unlikely]]
        collect_due();
    if (waiting)
        advance_senders(nullptr, Tell::nobody);
}

template void Queue::poll<FI_CQ_FORMAT_CONTEXT>(Sink &sink) noexcept; // for an owner's (owned_queue.cpp)

template <fi_cq_format Format> ssize_t Queue::read(fid_cq *fid, void *buffer, std::size_t count) noexcept
{
    return queue_of(fid).read_with_sources<Format>(buffer, count, nullptr);
}

template <fi_cq_format Format>
[[gnu::always_inline]] inline ssize_t Queue::read_with_sources(void *buffer, std::size_t count,
                                                               fi_addr_t *sources) noexcept
{
    Queue &queue = *this;
    Sink sink{count ? static_cast<std::byte *>(buffer) : nullptr, count};
    queue.lock.lock();
    const bool was_armed = queue.suspend();
    if (!queue.entries.empty()) {
        sink.taken = queue.take<Format>(sink.out, sink.room, sources);
        sink.room -= sink.taken;
    }
    if (!queue.error_first() && (sink.room || !count)) {
        queue.poll<Format>(sink);
        if (!queue.entries.empty())
            sink.taken += queue.take<Format>(sink.out, sink.room, sources ? sources + sink.taken : nullptr);
    }
    const bool failures = queue.failed != nullptr;
    const bool error = queue.error_first();
    const bool left = !queue.entries.empty();
    const bool looks_out = queue.ring_halves != 0;
    bool look_at_cm = (!sink.taken && !left && (queue.note_idle() % kCmInterval) == 0) ||
                      (looks_out && queue.lookout.due(++queue.watched_reads));
    if (was_armed) [[unlikely]]
        queue.end_armed_read(sink.taken || left || error || failures);
    const bool tired =
        queue.sleepers == nullptr && queue.turns.note(sink.taken || left); // else it is his to say how he spins
    const bool others = !sink.taken && queue.companions.any() && queue.reads % kCompanions == 0;
    queue.lock.unlock();

    if (failures) [[unlikely]]
        queue.report_failures();
    if (others) [[unlikely]]
        queue.progress_companions();
    if (tired) [[unlikely]] // who has had the processor meanwhile may have sent for the first time
        look_at_cm |= queue.lookout.due_at(queue.turns.yield()) && looks_out;
    if (look_at_cm) [[unlikely]]
        queue.domain.fabric.cm_progress();
    if (sink.taken)
        return static_cast<ssize_t>(sink.taken);
    if (error)
        return -FI_EAVAIL;
    return !count && left ? 0 : -FI_EAGAIN;
}

// What is done while the queue is read is not for sleepers. Who counts them has the bell off from the first read on.
bool Queue::suspend() noexcept
{
    if (!armed) [[likely]]
        return false;
    if (sleepers != nullptr)
        disarm();
    return std::exchange(armed, false);
}

void Queue::progress_companions() noexcept
{
    companions.each([](Queue &other) {
        other.progress_alone();
        return true;
    });
}

void Queue::progress() noexcept
{
    progress_alone();
    progress_companions();
}

void Queue::progress_alone() noexcept
{
    lock.lock();
    Sink sink{nullptr, 0};
    const std::size_t before = entries.size();
    const bool was_armed = suspend();
    poll<FI_CQ_FORMAT_CONTEXT>(sink);
    if (nobody_reads)
        entries.clear();
    const bool failures = failed != nullptr;
    if (was_armed)
        end_armed_read(failures || entries.size() != before);
    const bool look_at_cm = ring_halves != 0 && lookout.due(++watched_reads);
    lock.unlock();
    if (failures)
        report_failures();
    if (look_at_cm)
        domain.fabric.cm_progress();
}

void Queue::drain(Endpoint &endpoint) noexcept
{
    Sink sink{nullptr, 0};
    for (unsigned i = 0; i < kVisits && has_slot(endpoint) && !entries.full(); ++i) {
        push_rung(endpoint); // its bit may have been taken already
        take_slots<FI_CQ_FORMAT_CONTEXT>(sink, false);
    }
    settle(endpoint);
    doorbell.ring_self(endpoint.bit); // for what is left
}

namespace {

template <fi_cq_format Format>
ssize_t read_from(fid_cq *fid, void *buffer, std::size_t count, fi_addr_t *sources) noexcept
{
    for (std::size_t i = 0; sources && i < count; ++i)
        sources[i] = FI_ADDR_NOTAVAIL; // a connection has one peer, which no address vector knows
    return queue_of(fid).read_with_sources<Format>(buffer, count, sources);
}

// Sleeps until the queue or connection management has something. False: fi_cq_signal() was called, or what a rate limit
// has refused may go.
bool sleep_once(Queue &queue, int milliseconds) noexcept
{
    queue.domain.fabric.cm_progress();
    {
        const core::SpinGuard guard(queue.lock);
        if (queue.signalled) {
            queue.signalled = false;
            return false;
        }
    }
    bool due = false;
    if (!queue.arm_all(Entries::count, &due))
        return !due;
    pollfd fds[] = {{queue.sleep_fd(), POLLIN, 0},
                    {queue.domain.fabric.device->wait_fd(), POLLIN, 0},
                    {queue.paced.timer.get(), POLLIN, 0}}; // poll() passes over -1
    if (core::kernel::poll(fds, std::size(fds), milliseconds) == 0) {
        const core::SpinGuard guard(queue.lock);
        queue.ring_all();
    }
    return true;
}

template <fi_cq_format Format>
ssize_t sread_from(fid_cq *fid, void *buffer, std::size_t count, fi_addr_t *sources, const void *cond,
                   int timeout) noexcept
{
    Queue &queue = queue_of(fid);
    return ofi::cq_sread<Format>(queue, buffer, count, sources, cond, timeout, read_from<Format>,
                                 [&queue](int milliseconds) noexcept { return sleep_once(queue, milliseconds); });
}

template <fi_cq_format Format>
ssize_t sread(fid_cq *fid, void *buffer, std::size_t count, const void *cond, int timeout) noexcept
{
    return sread_from<Format>(fid, buffer, count, nullptr, cond, timeout);
}

int signal(fid_cq *fid)
{
    Queue &queue = queue_of(fid);
    if (queue.domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    const core::SpinGuard guard(queue.lock);
    queue.signalled = true;
    queue.wake_sleepers();
    return 0;
}

template <fi_cq_format Format>
fi_ops_cq cq_ops = {
    .size = sizeof(fi_ops_cq),
    .read = Queue::read<Format>,
    .readfrom = read_from<Format>,
    .readerr = ofi::cq_readerr,
    .sread = sread<Format>,
    .sreadfrom = sread_from<Format>,
    .signal = signal,
    .strerror = ofi::cq_strerror,
};

fi_ops_cq *ops_for(const Queue &queue) noexcept
{
    if (queue.owners.any())
        return &owned_cq_ops;
    switch (queue.format) {
    case FI_CQ_FORMAT_CONTEXT:
        return &cq_ops<FI_CQ_FORMAT_CONTEXT>;
    case FI_CQ_FORMAT_MSG:
        return &cq_ops<FI_CQ_FORMAT_MSG>;
    case FI_CQ_FORMAT_TAGGED:
        return &cq_ops<FI_CQ_FORMAT_TAGGED>;
    default:
        return &cq_ops<FI_CQ_FORMAT_DATA>;
    }
}

int close(fid *fid)
{
    Queue *queue = static_cast<Queue *>(&ofi::cq_of(fid));
    if (queue->domain.fabric.orphaned())
        return 0; // the parent's; its memory isn't mapped here
    if (queue->endpoints)
        return -FI_EBUSY;
    queue->domain.refs.fetch_sub(1, std::memory_order_relaxed);
    delete queue;
    return 0;
}

int give_places(const Queue &queue, fi_vma_places *out) noexcept
{
    static_assert(sizeof(fi_vma_place) == sizeof(Place) && offsetof(fi_vma_place, asleep) == offsetof(Place, asleep) &&
                  offsetof(fi_vma_place, turn) == offsetof(Place, turn));
    if (out == nullptr)
        return -FI_EINVAL;
    *out = {reinterpret_cast<fi_vma_place *>(queue.doorbell.places()), kPlaces};
    return 0;
}

int control(fid *fid, int command, void *argument)
{
    Queue &queue = static_cast<Queue &>(ofi::cq_of(fid));
    if (command == FI_GETWAIT && queue.wait_obj != FI_WAIT_NONE && argument)
        return queue.give_wait_fd(*static_cast<int *>(argument));
    if (static_cast<unsigned>(command) == FI_VMA_SLEEPERS)
        return queue.count_by(static_cast<const std::uint32_t *>(argument));
    if (static_cast<unsigned>(command) == FI_VMA_PLACES)
        return give_places(queue, static_cast<fi_vma_places *>(argument));
    return ofi::cq_control(queue, -1, command, argument); // FI_GETWAIT is above
}

constinit fi_ops cq_fid_ops = ofi::FidOps{.close = close, .control = control};

int trywait(ofi::Cq &cq) noexcept
{
    Queue &queue = static_cast<Queue &>(cq);
    if (queue.domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    if (queue.sleepers == nullptr)
        queue.domain.fabric.cm_progress();
    return queue.arm_all() ? 0 : -FI_EAGAIN;
}

} // namespace

int open_cq(ofi::Domain &domain, const fi_cq_attr *attr, fid_cq **cq, void *context) noexcept
{
    std::unique_ptr<Queue> queue(new (std::nothrow) Queue(domain));
    if (!queue)
        return -FI_ENOMEM;
    if (const int error = ofi::init_cq(*queue, attr, context))
        return error;
    if (attr && (attr->flags & FI_VMA_TIMESTAMP)) {
        VMA_WARN(cq, "no NIC stamps completions of this device: a queue with FI_VMA_TIMESTAMP is refused");
        return -FI_EOPNOTSUPP;
    }
    if (const int error = queue->open())
        return error;
    queue->untimed = attr && (attr->flags & FI_VMA_UNTIMED);
    queue->fid.fid.ops = &cq_fid_ops;
    queue->fid.ops = ops_for(*queue);
    queue->trywait = trywait;
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *cq = &queue.release()->fid;
    return 0;
}

} // namespace vma::local
