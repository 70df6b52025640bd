// SPDX-License-Identifier: BSD-2-Clause
// Completion queues and channels of the simulated NIC, the extended ones with completion times too.
#include "contrib/lab/sim/world.hpp"

namespace vma::sim {
namespace {

Cq *create(ibv_context *context, std::uint32_t cqe, void *user, ibv_comp_channel *channel, std::uint32_t vector)
{
    const Device &device = nic(context);
    if (device.removed)
        return null_errno(EIO);
    if (cqe == 0 || cqe > static_cast<std::uint32_t>(device.config.max_cqe) ||
        vector >= static_cast<std::uint32_t>(context->num_comp_vectors))
        return null_errno(EINVAL);
    auto *made = new Cq;
    static_cast<ibv_cq_ex &>(*made) = {};
    made->context = context;
    made->channel = channel;
    made->cq_context = user;
    made->cqe = static_cast<int>(cqe);
    if (channel != nullptr)
        ++channel->refcnt;
    world().cqs.insert(made);
    return made;
}

void raise(Cq &cq)
{
    cq.armed = Armed::no;
    if (cq.channel == nullptr)
        return;
    of(cq.channel)->events.push(&cq);
    ++world().stats.cq_events;
}

// An entry less, with what it held.
Cqe pop(Cq &cq)
{
    Cqe first = cq.entries.front();
    cq.entries.pop_front();
    release(first);
    return first;
}

} // namespace

void release(const Cqe &entry)
{
    if (entry.srq != nullptr)
        --entry.srq->queue.used;
    else if (entry.send)
        entry.qp->sends_freed = entry.upto;
    else
        --entry.qp->own.used;
}

void push(ibv_cq *queue, Cqe entry, bool solicited)
{
    Cq &cq = *of(queue);
    World &w = world();
    entry.time = w.timers.now();
    const bool full = cq.entries.size() >= static_cast<std::size_t>(cq.cqe);
    if (full && !cq.overrun) {
        cq.overrun = true;
        async_event(cq.context, IBV_EVENT_CQ_ERR, &cq);
    }
    if (cq.overrun || std::exchange(entry.qp->drop_completion, false)) {
        ++w.stats.dropped;
        return;
    }
    ++w.stats.completions;
    const bool wakes =
        cq.armed == Armed::any || (cq.armed == Armed::solicited && (solicited || entry.wc.status != IBV_WC_SUCCESS));
    cq.entries.push_back(entry);
    if (wakes)
        raise(cq);
}

void purge(ibv_cq *queue, const Qp &qp)
{
    std::erase_if(of(queue)->entries, [&qp](const Cqe &entry) {
        if (entry.qp != &qp)
            return false;
        release(entry);
        return true;
    });
}

int poll_cq(ibv_cq *queue, int count, ibv_wc *wc)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    w.timers.work();
    Cq &cq = *of(queue);
    int found = 0;
    while (found < count && !cq.entries.empty())
        wc[found++] = pop(cq).wc;
    return found;
}

int req_notify_cq(ibv_cq *queue, int solicited_only)
{
    const std::lock_guard guard(world().mutex);
    if (const int error = take_fault("req_notify_cq"))
        return error;
    Cq &cq = *of(queue);
    // One that waits for any completion is not made to wait for fewer.
    if (solicited_only == 0)
        cq.armed = Armed::any;
    else if (cq.armed == Armed::no)
        cq.armed = Armed::solicited;
    return 0;
}

namespace {

Cq &cq_of(ibv_cq_ex *cq)
{
    return *static_cast<Cq *>(cq);
}

int next_poll(ibv_cq_ex *queue)
{
    const std::lock_guard guard(world().mutex);
    world().timers.work();
    Cq &cq = cq_of(queue);
    if (cq.entries.empty())
        return ENOENT;
    cq.current = pop(cq);
    cq.wr_id = cq.current.wc.wr_id;
    cq.status = cq.current.wc.status;
    return 0;
}

int start_poll(ibv_cq_ex *queue, ibv_poll_cq_attr *attr)
{
    return attr->comp_mask != 0 ? EINVAL : next_poll(queue);
}

// An entry that tells of an error has other things where the time would be, as a ConnectX's.
std::uint64_t stamp_of(ibv_cq_ex *queue)
{
    const Cqe &entry = cq_of(queue).current;
    return entry.wc.status == IBV_WC_SUCCESS ? ticks(nic(queue->context), entry.time) : entry.wc.vendor_err;
}

// Fields that were not asked for can't be read: in rdma-core their functions are null pointers.
void set_calls(Cq &cq, std::uint64_t wanted)
{
    cq.start_poll = start_poll;
    cq.next_poll = next_poll;
    cq.end_poll = [](ibv_cq_ex *) {};
    cq.read_opcode = [](ibv_cq_ex *c) { return cq_of(c).current.wc.opcode; };
    cq.read_vendor_err = [](ibv_cq_ex *c) { return cq_of(c).current.wc.vendor_err; };
    cq.read_wc_flags = [](ibv_cq_ex *c) { return cq_of(c).current.wc.wc_flags; };
    if ((wanted & IBV_WC_EX_WITH_BYTE_LEN) != 0)
        cq.read_byte_len = [](ibv_cq_ex *c) { return cq_of(c).current.wc.byte_len; };
    if ((wanted & IBV_WC_EX_WITH_IMM) != 0)
        cq.read_imm_data = [](ibv_cq_ex *c) { return cq_of(c).current.wc.imm_data; };
    if ((wanted & IBV_WC_EX_WITH_QP_NUM) != 0)
        cq.read_qp_num = [](ibv_cq_ex *c) { return cq_of(c).current.wc.qp_num; };
    if ((wanted & IBV_WC_EX_WITH_SRC_QP) != 0)
        cq.read_src_qp = [](ibv_cq_ex *c) { return cq_of(c).current.wc.src_qp; };
    if ((wanted & IBV_WC_EX_WITH_SLID) != 0)
        cq.read_slid = [](ibv_cq_ex *) { return std::uint32_t{0}; };
    if ((wanted & IBV_WC_EX_WITH_SL) != 0)
        cq.read_sl = [](ibv_cq_ex *) { return std::uint8_t{0}; };
    if ((wanted & IBV_WC_EX_WITH_DLID_PATH_BITS) != 0)
        cq.read_dlid_path_bits = [](ibv_cq_ex *) { return std::uint8_t{0}; };
    if ((wanted & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0)
        cq.read_completion_ts = stamp_of;
}

} // namespace

ibv_cq_ex *create_cq_ex(ibv_context *context, ibv_cq_init_attr_ex *attr)
{
    const std::lock_guard guard(world().mutex);
    if (const int error = take_fault("create_cq_ex"))
        return null_errno(error);
    const bool times = (attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0;
    const std::uint64_t known = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    if ((attr->comp_mask & ~std::uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) != 0)
        return null_errno(EINVAL);
    if ((attr->wc_flags & ~known) != 0 || (times && nic(context).config.clock_khz == 0))
        return null_errno(EOPNOTSUPP);
    Cq *made = create(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector);
    if (made != nullptr)
        set_calls(*made, attr->wc_flags);
    return made;
}

int modify_cq(ibv_cq *queue, ibv_modify_cq_attr *attr)
{
    const std::lock_guard guard(world().mutex);
    if (const int error = take_fault("modify_cq"))
        return error;
    const Device &device = nic(of(queue)->context);
    if (device.removed)
        return EIO;
    if (attr->attr_mask != IBV_CQ_ATTR_MODERATE)
        return EINVAL;
    if (!device.config.moderation)
        return EOPNOTSUPP;
    Stats &stats = world().stats;
    ++stats.moderations;
    stats.held_completions = attr->moderate.cq_count;
    stats.held_us = attr->moderate.cq_period;
    return 0;
}

namespace calls {

ibv_comp_channel *create_comp_channel(ibv_context *context)
{
    const std::lock_guard guard(world().mutex);
    if (nic(context).removed)
        return null_errno(EIO);
    auto *made = new Channel;
    made->context = context;
    made->fd = made->events.fd();
    made->refcnt = 0;
    world().channels.insert(made);
    return made;
}

int destroy_comp_channel(ibv_comp_channel *channel)
{
    const std::lock_guard guard(world().mutex);
    if (channel->refcnt != 0)
        return EBUSY;
    world().channels.erase(of(channel));
    delete of(channel);
    return 0;
}

ibv_cq *create_cq(ibv_context *context, int cqe, void *user, ibv_comp_channel *channel, int vector)
{
    const std::lock_guard guard(world().mutex);
    Cq *made = create(context, static_cast<std::uint32_t>(std::max(cqe, 0)), user, channel,
                      static_cast<std::uint32_t>(vector));
    return made == nullptr ? nullptr : ibv_cq_ex_to_cq(made);
}

int destroy_cq(ibv_cq *queue)
{
    World &w = world();
    std::unique_lock lock(w.mutex);
    Cq *cq = of(queue);
    if (cq->users != 0)
        return EBUSY;
    if (cq->channel != nullptr)
        of(cq->channel)->events.remove([cq](const Cq *waiting) { return waiting == cq; });
    forget_async(cq->context, cq);
    wait_acknowledged(lock, "ibv_destroy_cq",
                      [cq, &w] { return cq->comp_events_completed == cq->given && !w.unacked.contains(cq); });
    if (cq->channel != nullptr)
        --cq->channel->refcnt;
    w.cqs.erase(cq);
    delete cq;
    return 0;
}

int resize_cq(ibv_cq *queue, int cqe)
{
    const std::lock_guard guard(world().mutex);
    Cq *cq = of(queue);
    if (cqe < 1 || cqe > nic(cq->context).config.max_cqe || static_cast<std::size_t>(cqe) < cq->entries.size())
        return EINVAL;
    cq->cqe = cqe;
    return 0;
}

int get_cq_event(ibv_comp_channel *channel, ibv_cq **cq, void **user)
{
    const bool taken = of(channel)->events.take(world().mutex, [cq, user](Cq *ready) {
        ++ready->given;
        *cq = ibv_cq_ex_to_cq(ready);
        *user = ready->cq_context;
    });
    return taken ? 0 : -1;
}

void ack_cq_events(ibv_cq *cq, unsigned count)
{
    const std::lock_guard guard(world().mutex);
    of(cq)->comp_events_completed += count;
    world().acknowledged.notify_all();
}

} // namespace calls
} // namespace vma::sim
