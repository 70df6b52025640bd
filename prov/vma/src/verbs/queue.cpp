// SPDX-License-Identifier: BSD-2-Clause
// What is in a completion queue of the verbs device, and how one sleeps until there is something. Reading is in
// queue_read.cpp.
#include "verbs/queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <sys/eventfd.h>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ofi/ops.hpp"
#include "rdma/fi_ext_vma.h"
#include "verbs/domain.hpp"
#include "verbs/endpoint.hpp"

namespace vma::verbs {

namespace {

// The device's clock alone (FI_VMA_TIMESTAMP): doc/verbs-device.md says why not its wall clock.
ibv_cq_ex *create_stamped(ibv_context *context, std::uint32_t size, ibv_comp_channel *channel) noexcept
{
    ibv_cq_init_attr_ex attr{};
    attr.cqe = size;
    attr.channel = channel;
    attr.wc_flags =
        IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    return ibv_create_cq_ex(context, &attr);
}

} // namespace

int Queue::open_device(std::size_t size, bool with_times) noexcept
{
    const NicDomain &nic = nic_domain(domain);
    if (with_times && !nic.clock().runs())
        return -FI_EOPNOTSUPP;
    const auto most = static_cast<std::size_t>(nic.nic().attr.max_cqe);
    const auto wanted = static_cast<std::uint32_t>(std::min(size, most));
    channel = table()->create_comp_channel(nic.context());
    if (channel == nullptr || !core::set_nonblocking(channel->fd))
        return last_error();
    if (with_times) {
        stamped = create_stamped(nic.context(), wanted, channel);
        cq = stamped != nullptr ? ibv_cq_ex_to_cq(stamped) : nullptr;
    } else {
        cq = table()->create_cq(nic.context(), static_cast<int>(wanted), nullptr, channel, 0);
    }
    return cq != nullptr ? 0 : last_error();
}

int Queue::open(std::size_t size, bool with_times) noexcept
{
    if (const int error = open_device(size, with_times)) {
        if (with_times)
            VMA_WARN(cq, "RDMA device %s gives no queue for FI_VMA_TIMESTAMP, whose completions have times: %s",
                     nic_domain(domain).nic().name, std::strerror(-error));
        return error;
    }
    signal = core::make_fd([] { return core::kernel::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
    return signal ? 0 : -errno;
}

Queue::~Queue()
{
    if (cq != nullptr)
        table()->destroy_cq(cq);
    if (channel != nullptr)
        table()->destroy_comp_channel(channel);
}

int Queue::reserve(std::size_t count) noexcept
{
    const std::size_t wanted = reserved + count;
    if (wanted > static_cast<std::size_t>(cq->cqe)) {
        const auto most = static_cast<std::size_t>(nic_domain(domain).nic().attr.max_cqe);
        if (wanted > most) {
            VMA_WARN(cq, "%zu operations may be under way, the device's queue has room for %zu", wanted, most);
            return -FI_ENOSPC;
        }
        if (const int error = table()->resize_cq(cq, static_cast<int>(std::min(std::bit_ceil(wanted), most))))
            return -error;
    }
    reserved = wanted;
    return 0;
}

int Queue::moderate(const fi_vma_moderation *wanted) noexcept
{
    return wanted != nullptr ? moderate_queue(cq, wanted->completions, wanted->period) : -FI_EINVAL;
}

void Queue::add(Endpoint &endpoint, std::uint32_t qp_num) noexcept
{
    by_qp[qp_num] = &endpoint;
}

void Queue::remove(std::uint32_t qp_num) noexcept
{
    by_qp.erase(qp_num);
    if (last_qp == qp_num)
        last_endpoint = nullptr;
}

void Queue::progress() noexcept
{
    lock.lock();
    drain();
    if (nobody_reads)
        entries.clear();
    const bool failures = broken != nullptr;
    lock.unlock();
    if (failures)
        report_broken();
}

// An event stands for the completions after the last request for one. It is taken off the channel only here, so that
// everybody who sleeps on the descriptor sees it.
bool Queue::arm(Entries unread) noexcept
{
    ibv_cq *which = nullptr;
    void *context = nullptr;
    unsigned events = 0;
    while (table()->get_cq_event(channel, &which, &context) == 0)
        ++events;
    if (events > 0) {
        table()->ack_cq_events(cq, events);
        armed = false;
        wakes += events;
    }
    if (!armed && ibv_req_notify_cq(cq, 0) == 0) {
        armed = true;
        ++armings;
    }
    const bool some = drain();
    return unread == Entries::count ? entries.empty() : !some;
}

void Queue::report_broken() noexcept
{
    lock.lock();
    while (broken != nullptr && reporting == nullptr) {
        Endpoint &endpoint = *broken;
        broken = endpoint.broken_next;
        reporting = &endpoint; // fi_close() of it waits
        lock.unlock();
        endpoint.report_broken();
        lock.lock();
        reporting = nullptr;
    }
    lock.unlock();
}

void Queue::note_due(std::uint64_t when) noexcept
{
    std::uint64_t first = due.load(std::memory_order_relaxed);
    while (when < first && !due.compare_exchange_weak(first, when, std::memory_order_relaxed)) {
    }
}

ofi::ProgressSource Queue::source() noexcept
{
    return {
        .object = this,
        .progress = [](void *object) noexcept { static_cast<Queue *>(object)->progress(); },
        .arm =
            [](void *object) noexcept {
                Queue &queue = *static_cast<Queue *>(object);
                const core::SpinGuard guard(queue.lock);
                return queue.arm(Entries::pass) ? queue.wait_fd() : -1;
            },
    };
}

namespace {

int close(fid *fid)
{
    std::unique_ptr<Queue> queue(&static_cast<Queue &>(ofi::cq_of(fid)));
    const bool orphaned = queue->domain.fabric.orphaned();
    if (orphaned || !queue->by_qp.empty()) {
        static_cast<void>(queue.release());
        return orphaned ? 0 : -FI_EBUSY;
    }
    queue->domain.refs.fetch_sub(1, std::memory_order_relaxed);
    return 0;
}

int control(fid *fid, int command, void *argument)
{
    Queue &queue = static_cast<Queue &>(ofi::cq_of(fid));
    if (static_cast<unsigned>(command) == FI_VMA_CLOCKS && queue.stamped != nullptr) {
        if (queue.domain.fabric.orphaned())
            return -FI_EOPBADSTATE;
        auto *clocks = static_cast<fi_vma_clocks *>(argument);
        return clocks != nullptr ? nic_domain(queue.domain).clock().compare(*clocks) : -FI_EINVAL;
    }
    if (static_cast<unsigned>(command) == FI_VMA_MODERATE)
        return queue.domain.fabric.orphaned() ? -FI_EOPBADSTATE
                                              : queue.moderate(static_cast<const fi_vma_moderation *>(argument));
    return ofi::cq_control(queue, queue.wait_fd(), command, argument);
}

constinit fi_ops g_fid_ops = ofi::FidOps{.close = close, .control = control};

int trywait(ofi::Cq &cq) noexcept
{
    Queue &queue = static_cast<Queue &>(cq);
    if (queue.domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    queue.domain.fabric.cm_progress();
    const core::SpinGuard guard(queue.lock);
    return queue.arm() && queue.broken == nullptr && queue.fast.empty() ? 0 : -FI_EAGAIN;
}

} // namespace

int open_cq(ofi::Domain &domain, const fi_cq_attr *attr, fid_cq **cq, void *context) noexcept
{
    std::unique_ptr<Queue> queue(new (std::nothrow) Queue(domain));
    if (!queue)
        return -FI_ENOMEM;
    if (const int error = ofi::init_cq(*queue, attr, context))
        return error;
    const bool with_times = attr != nullptr && (attr->flags & FI_VMA_TIMESTAMP) != 0;
    if (with_times && attr->format != FI_CQ_FORMAT_TAGGED && attr->format != FI_CQ_FORMAT_UNSPEC) {
        VMA_WARN(cq, "FI_VMA_TIMESTAMP needs FI_CQ_FORMAT_TAGGED, not format %d: the queue is refused", attr->format);
        return -FI_EINVAL;
    }
    if (with_times)
        queue->format = FI_CQ_FORMAT_TAGGED;
    if (const int error = queue->open(queue->entries.limit(), with_times))
        return error;
    queue->fid.fid.ops = &g_fid_ops;
    queue->fid.ops = cq_ops(*queue);
    queue->trywait = trywait;
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *cq = &queue.release()->fid;
    return 0;
}

} // namespace vma::verbs
