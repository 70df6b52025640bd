// SPDX-License-Identifier: BSD-2-Clause
// The life of an endpoint: opening, binding, its queue pair, the end.
#include "verbs/endpoint.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ofi/bind.hpp"
#include "ofi/give_option.hpp"
#include "ofi/op_flags.hpp"
#include "ofi/ops.hpp"
#include "ofi/rate_limit.hpp"
#include "rdma/fi_ext_vma.h"
#include "verbs/srx.hpp"

namespace vma::verbs {
namespace {

constexpr std::size_t kMaxDeviceMemory = std::size_t{1} << 20;
constexpr std::uint32_t kOwnInline = 64; // bytes: what the provider itself sends inline is shorter

} // namespace

Endpoint::Endpoint(ofi::Domain &owner, const fi_info *info) noexcept
    : domain(owner), manager(manager_of(owner.fabric)), format(info)
{
    const ofi::Offer &offer = nic_domain(domain).nic().offer;
    const fi_tx_attr *tx_attr = info->tx_attr;
    const fi_rx_attr *rx_attr = info->rx_attr;
    tx_size_ = std::min(tx_attr && tx_attr->size ? tx_attr->size : offer.tx.size, offer.most_size);
    rx_size_ = std::min(rx_attr && rx_attr->size ? rx_attr->size : offer.rx.size, offer.most_size);
    const std::uint32_t most = nic_domain(domain).nic().max_inline;
    max_inline = tx_attr ? static_cast<std::uint32_t>(std::min<std::size_t>(tx_attr->inject_size, most)) : most;
    tx_flags = tx_attr ? tx_attr->op_flags : 0;
    rx_flags = rx_attr ? rx_attr->op_flags : 0;
    cq_data = (info->mode & FI_RX_CQ_DATA) != 0;
    tx_lock.set_enabled(domain.needs_locks());
    rx_lock.set_enabled(domain.needs_locks());
    handler = {this, [](void *object, CmEvent &event) noexcept { static_cast<Endpoint *>(object)->on_event(event); }};
}

int Endpoint::bind(struct fid *what, std::uint64_t flags) noexcept
{
    if (is_enabled)
        return -FI_EOPBADSTATE;
    switch (what->fclass) {
    case FI_CLASS_CQ:
        return ofi::bind_queue(domain, static_cast<Queue &>(ofi::cq_of(what)), flags, {tx_queue, tx_selective},
                               {rx_queue, rx_selective});
    case FI_CLASS_CNTR: // what a peer writes or reads is between two devices: nobody counts it here
        return ofi::bind_counter(
            domain, ofi::cntr_of(what), flags,
            {{FI_SEND, send_counter}, {FI_WRITE, write_counter}, {FI_READ, read_counter}, {FI_RECV, receive_counter}});
    case FI_CLASS_EQ: {
        ofi::Eq &bound = *reinterpret_cast<ofi::Eq *>(what);
        const std::lock_guard guard(manager.mutex());
        if (eq != nullptr || &bound.fabric != &domain.fabric)
            return -FI_EINVAL;
        bound.refs.fetch_add(1, std::memory_order_relaxed);
        eq = &bound;
        return 0;
    }
    case FI_CLASS_SRX_CTX:
        if (shared != nullptr || &reinterpret_cast<SharedReceive *>(what)->domain != &domain)
            return -FI_EINVAL;
        shared = reinterpret_cast<SharedReceive *>(what);
        shared->refs.fetch_add(1, std::memory_order_relaxed);
        return 0;
    default:
        return -FI_EINVAL;
    }
}

void Endpoint::for_counters(void (ofi::Cntr::*action)(const ofi::ProgressSource &) noexcept) noexcept
{
    for (ofi::Cntr *counter : {send_counter, write_counter, read_counter}) {
        if (counter)
            (counter->*action)(tx_queue->source());
    }
    if (receive_counter)
        (receive_counter->*action)(rx_queue->source());
}

int Endpoint::create_qp() noexcept
{
    if (qp != nullptr)
        return 0;
    const NicDomain &nic = nic_domain(domain);
    const auto sge = std::min<std::uint32_t>(nic.nic().max_sge, kMostIov);
    ibv_qp_init_attr attr{};
    attr.qp_context = this;
    attr.send_cq = tx_queue->cq;
    attr.recv_cq = rx_queue->cq;
    attr.srq = shared ? shared->srq : nullptr;
    attr.cap = {.max_send_wr = static_cast<std::uint32_t>(tx_size_),
                .max_recv_wr = shared ? 0 : static_cast<std::uint32_t>(rx_size_),
                .max_send_sge = sge,
                .max_recv_sge = shared ? 0 : sge,
                .max_inline_data = std::min(std::max(max_inline, kOwnInline), nic.nic().max_inline)};
    attr.qp_type = IBV_QPT_RC;
    qp = table()->create_qp(nic.pd(), &attr);
    if (qp == nullptr) {
        const int error = last_error();
        VMA_WARN(ep_ctrl, "cannot make a queue pair of %zu sends and %zu receives: %s", tx_size_, rx_size_,
                 std::strerror(-error));
        return error;
    }
    max_inline = std::min(max_inline, attr.cap.max_inline_data);
    return 0;
}

// From now on receives can be posted, as libfabric lets a program do before it connects.
int Endpoint::move_to_init() noexcept
{
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = id && id->port_num != 0 ? id->port_num : 1;
    attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    const int error =
        table()->modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    return -error;
}

// Room in the queues for all that may be under way. Receives that endpoints share are counted once.
int Endpoint::join_queues() noexcept
{
    if (joined_)
        return 0; // by an fi_enable that failed later
    int error = reserve_receives();
    if (error)
        return error;
    {
        const core::SpinGuard guard(tx_queue->lock);
        error = tx_queue->reserve(tx_size_);
    }
    joined_ = error == 0;
    if (error)
        release_receives();
    return error;
}

int Endpoint::reserve_receives() noexcept
{
    const core::SpinGuard guard(rx_queue->lock);
    const auto found = rx_queue->shared.find(shared);
    const std::size_t receives = !shared ? rx_size_ : found == rx_queue->shared.end() ? shared->size : 0;
    const int error = rx_queue->reserve(receives);
    if (shared && !error)
        ++rx_queue->shared[shared];
    return error;
}

void Endpoint::release_receives() noexcept
{
    const core::SpinGuard guard(rx_queue->lock);
    if (!shared) {
        rx_queue->release(rx_size_);
    } else if (--rx_queue->shared[shared] == 0) {
        rx_queue->shared.erase(shared);
        rx_queue->release(shared->size);
    }
}

int Endpoint::enable() noexcept
{
    if (is_enabled)
        return -FI_EOPBADSTATE;
    const bool counts_tx = send_counter || write_counter || read_counter;
    if ((!tx_queue && !counts_tx) || (!rx_queue && !receive_counter))
        return -FI_ENOCQ;
    int error = 0;
    if ((!tx_queue && (error = ofi::own_queue(domain, open_cq, hidden_queue_, tx_queue))) ||
        (!rx_queue && (error = ofi::own_queue(domain, open_cq, hidden_queue_, rx_queue))))
        return error;
    if (!tx.allocate(tx_size_) || !rx.allocate(rx_size_))
        return -FI_ENOMEM;
    if ((error = join_queues()) || (error = create_qp()) || (error = move_to_init()) ||
        (region_bytes_ != 0 && (error = open_region())))
        return error;
    open_fast();
    if (device_memory_bytes_ != 0)
        device_memory.open(nic_domain(domain).pd(), device_memory_bytes_);
    for (Queue *queue : {tx_queue, rx_queue}) {
        const core::SpinGuard guard(queue->lock);
        queue->add(*this, qp->qp_num);
    }
    for_counters(&ofi::Cntr::add_source);
    if (watch)
        need_locks();
    is_enabled = true;
    return 0;
}

int Endpoint::open_region() noexcept
{
    if (shared)
        return -FI_EINVAL; // its receives are the notes'
    region.reset(new (std::nothrow) RegionLink);
    if (!region)
        return -FI_ENOMEM;
    if (const int error = region->open(nic_domain(domain).pd(), region_bytes_, rx_size_))
        return error;
    region->describe(outgoing.header);
    return post_notes();
}

std::size_t Endpoint::sends_left() const noexcept
{
    const std::size_t left = tx.left();
    if (!region)
        return fast_out ? left - std::min(left, kFastWordSends) : left;
    return std::min<std::size_t>(left > kReservedSends ? left - kReservedSends : 0, region->left());
}

int Endpoint::set_option(int name, const void *value, std::size_t length) noexcept
{
    if (static_cast<unsigned>(name) == FI_OPT_VMA_RATE_LIMIT)
        return set_limit(value, length);
    if (static_cast<unsigned>(name) == FI_OPT_VMA_KEEPALIVE_TIMEOUT ||
        static_cast<unsigned>(name) == FI_OPT_VMA_SEND_TIMEOUT)
        return set_timeout(name, value, length);
    const bool is_region = static_cast<unsigned>(name) == FI_OPT_VMA_REGION;
    if (!is_region && static_cast<unsigned>(name) != FI_OPT_VMA_DEVICE_MEMORY)
        return -FI_ENOPROTOOPT;
    if (is_enabled)
        return -FI_EOPBADSTATE;
    std::size_t bytes;
    if (!value || length != sizeof bytes)
        return -FI_EINVAL;
    std::memcpy(&bytes, value, sizeof bytes);
    if (bytes == 0 || bytes > (is_region ? kMaxRegion : kMaxDeviceMemory))
        return -FI_EINVAL;
    (is_region ? region_bytes_ : device_memory_bytes_) = bytes;
    return 0;
}

int Endpoint::get_option(int name, void *value, std::size_t *length) noexcept
{
    const bool joined = region && region->mirror;
    switch (static_cast<unsigned>(name)) {
    case FI_OPT_CM_DATA_SIZE:
        return ofi::give_option<std::size_t>(kCmDataSize, value, length);
    case FI_OPT_VMA_REGION:
        if (!is_enabled)
            return -FI_EOPBADSTATE;
        return ofi::give_option(fi_vma_region{region ? region->base() : nullptr, region_bytes_, FI_VMA_REGION_KEY},
                                value, length);
    case FI_OPT_VMA_KEEP_REGION:
        return is_enabled && region ? keep_region(value, length) : -FI_EOPBADSTATE;
    case FI_OPT_VMA_PEER_REGION:
    case FI_OPT_VMA_REGION_INJECT:
        if (!open_for_sends.load(std::memory_order_acquire) && !joined)
            return -FI_ENOTCONN;
        return ofi::give_option<std::size_t>(joined ? region->peer_length : 0, value, length);
    case FI_OPT_VMA_PEER_VIEW:
        if (!joined)
            return -FI_ENOTCONN;
        return ofi::give_option<const void *>(region->mirror.bytes(), value, length);
    case FI_OPT_VMA_RATE_LIMIT: {
        const core::SpinGuard guard(tx_lock);
        return ofi::give_option(pacer.limited() ? ofi::limit_of(pacer) : limit, value, length);
    }
    case FI_OPT_VMA_DEVICE_MEMORY: {
        const core::SpinGuard guard(tx_lock);
        return ofi::give_option(device_memory.statistics(), value, length);
    }
    case FI_OPT_VMA_RATE_DUE: {
        const core::SpinGuard guard(tx_lock);
        return ofi::give_option(due, value, length);
    }
    case FI_OPT_VMA_KEEPALIVE_TIMEOUT:
    case FI_OPT_VMA_SEND_TIMEOUT:
        return ofi::give_option(timeout(name), value, length);
    default:
        return -FI_ENOPROTOOPT;
    }
}

// With the queue's lock held.
void Endpoint::note_broken(Queue &queue, const char *why) noexcept
{
    if (broken.exchange(true, std::memory_order_acq_rel))
        return;
    broken_why.store(why, std::memory_order_release);
    broken_next = queue.broken;
    queue.broken = this;
}

// The device keeps what has completed in its queues until somebody reads it there: for this endpoint that is now.
void Endpoint::leave_queues() noexcept
{
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    table()->modify_qp(qp, &attr, IBV_QP_STATE);
    const std::uint32_t number = qp->qp_num;
    for (Queue *queue : {tx_queue, rx_queue}) {
        const core::SpinGuard guard(queue->lock);
        queue->drain();
        std::erase(queue->fast, this); // who minds a ring posts to the queue pair
    }
    table()->destroy_qp(qp);
    for (Queue *queue : {tx_queue, rx_queue}) {
        const core::SpinGuard guard(queue->lock);
        queue->drain();
        queue->remove(number);
        queue->forget(this);
        for (Endpoint **at = &queue->broken; *at; at = &(*at)->broken_next) {
            if (*at == this) {
                *at = broken_next;
                break;
            }
        }
        while (queue->reporting == this) {
            queue->lock.unlock();
            core::cpu_relax();
            queue->lock.lock();
        }
    }
}

Endpoint::~Endpoint()
{
    if (is_enabled)
        for_counters(&ofi::Cntr::remove_source);
    if (qp != nullptr)
        leave_queues();
    if (joined_) {
        release_receives();
        const core::SpinGuard guard(tx_queue->lock);
        tx_queue->release(tx_size_);
    }
    if (shared)
        shared->refs.fetch_sub(1, std::memory_order_relaxed);
}

namespace {

int close_endpoint(fid *fid)
{
    if (Endpoint::from(fid).domain.fabric.orphaned())
        return 0;
    const std::unique_ptr<Endpoint> endpoint(&Endpoint::from(fid));
    {
        const std::lock_guard guard(endpoint->manager.mutex());
        endpoint->close_connection();
    }
    endpoint->domain.refs.fetch_sub(1, std::memory_order_relaxed);
    return 0;
}

int bind(fid *fid, struct fid *what, std::uint64_t flags)
{
    return what ? Endpoint::from(fid).bind(what, flags) : -FI_EINVAL;
}

int control(fid *fid, int command, void *argument)
{
    return ofi::control_endpoint(Endpoint::from(fid), false, command, argument); // enable() knows an orphan
}

int setopt(fid_t fid, int level, int name, const void *value, std::size_t length)
{
    return level == FI_OPT_ENDPOINT ? Endpoint::from(fid).set_option(name, value, length) : -FI_ENOPROTOOPT;
}

int getopt(fid_t fid, int level, int name, void *value, std::size_t *length)
{
    return level == FI_OPT_ENDPOINT ? Endpoint::from(fid).get_option(name, value, length) : -FI_ENOPROTOOPT;
}

ssize_t rx_size_left(fid_ep *ep)
{
    Endpoint &endpoint = Endpoint::from(ep);
    if (!endpoint.is_enabled)
        return -FI_EOPBADSTATE;
    return static_cast<ssize_t>(endpoint.shared ? endpoint.shared->left() : endpoint.rx.left());
}

ssize_t tx_size_left(fid_ep *ep)
{
    Endpoint &endpoint = Endpoint::from(ep);
    return endpoint.is_enabled ? static_cast<ssize_t>(endpoint.sends_left()) : -FI_EOPBADSTATE;
}

constinit fi_ops g_fid_ops = ofi::FidOps{.close = close_endpoint, .bind = bind, .control = control};

constinit fi_ops_ep g_ep_ops = ofi::EpOps{
    .cancel = ofi::no_op, // what the device has, it keeps
    .getopt = getopt,
    .setopt = setopt,
    .rx_size_left = rx_size_left,
    .tx_size_left = tx_size_left,
};

} // namespace

int open_endpoint(ofi::Domain &domain, const fi_info *info, fid_ep **ep, void *context) noexcept
{
    const std::uint32_t type = ofi::endpoint_type(info->ep_attr);
    if (type != FI_EP_UNSPEC && type != FI_EP_MSG)
        return -FI_EINVAL;
    std::unique_ptr<Endpoint> endpoint(new (std::nothrow) Endpoint(domain, info));
    if (!endpoint)
        return -FI_ENOMEM;
    endpoint->fid.fid = {FI_CLASS_EP, context, &g_fid_ops};
    endpoint->fid.ops = &g_ep_ops;
    endpoint->fid.cm = &endpoint_cm_ops;
    endpoint->fid.msg = &endpoint_msg_ops;
    endpoint->fid.rma = &endpoint_rma_ops;
    {
        const std::lock_guard guard(endpoint->manager.mutex());
        if (const int error = endpoint->open_connection(*info))
            return error;
    }
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *ep = &endpoint.release()->fid;
    return 0;
}

} // namespace vma::verbs
