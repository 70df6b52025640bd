// SPDX-License-Identifier: BSD-2-Clause
// The life of a datagram endpoint: binding, its name, who comes and goes, the end.
#include "local/dgram.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <rdma/fi_errno.h>

#include "core/clock.hpp"
#include "core/kernel.hpp"
#include "core/log.hpp"
#include "local/manager.hpp"
#include "ofi/attr.hpp"
#include "ofi/av.hpp"
#include "ofi/bind.hpp"
#include "ofi/cntr.hpp"
#include "ofi/eq.hpp"
#include "ofi/give_option.hpp"
#include "ofi/rate_limit.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

DatagramEndpoint::DatagramEndpoint(ofi::Domain &domain, const fi_info &info) noexcept
    : domain_(domain), manager_(manager_of(domain.fabric)),
      rx_size_(info.rx_attr && info.rx_attr->size ? info.rx_attr->size : ofi::kDefaultQueueSize)
{
    handle.self = this;
    source_errors_ = (info.caps & FI_SOURCE_ERR) != 0;
    lock_.set_enabled(domain.needs_locks());
    tx_flags = info.tx_attr ? info.tx_attr->op_flags : 0;
    rx_flags = info.rx_attr ? info.rx_attr->op_flags : 0;
}

int DatagramEndpoint::bind(struct fid *what, std::uint64_t flags) noexcept
{
    if (enabled_)
        return -FI_EOPBADSTATE;
    switch (what->fclass) {
    case FI_CLASS_CQ:
        return ofi::bind_queue(domain_, static_cast<Queue &>(ofi::cq_of(what)), flags, {tx_queue_, tx_selective_},
                               {rx_queue_, rx_selective_});
    case FI_CLASS_CNTR:
        return ofi::bind_counter(domain_, ofi::cntr_of(what), flags,
                                 {{FI_SEND, send_counter_}, {FI_RECV, receive_counter_}});
    case FI_CLASS_AV: {
        ofi::Av &av = ofi::av_of(what);
        if (av_ || &av.domain != &domain_)
            return -FI_EINVAL;
        av.refs.fetch_add(1, std::memory_order_relaxed);
        av_ = &av;
        return 0;
    }
    case FI_CLASS_EQ: {
        ofi::Eq &eq = ofi::eq_of(reinterpret_cast<fid_eq *>(what));
        if (eq_ || &eq.fabric != &domain_.fabric)
            return -FI_EINVAL;
        eq.refs.fetch_add(1, std::memory_order_relaxed);
        eq_ = &eq;
        return 0;
    }
    default:
        return -FI_EINVAL;
    }
}

int DatagramEndpoint::take_name(const ofi::Address &wanted) noexcept
{
    if (!wanted.is_local())
        return -FI_EADDRNOTAVAIL;
    if (!name_ || name_.port() != wanted.port()) {
        int error = 0;
        directory_ = manager_.directory(&error);
        if (!directory_)
            return error;
        PortName taken;
        if ((error = directory_->reserve(wanted.port(), taken, NameKind::datagrams)))
            return error;
        name_ = std::move(taken);
    }
    local_ = wanted;
    local_.set_port(name_.port());
    return 0;
}

int DatagramEndpoint::propose_name(const ofi::Address &wanted) noexcept
{
    if (wanted.port() != 0)
        return set_name(wanted);
    local_ = wanted;
    return wanted.is_local() ? 0 : -FI_EADDRNOTAVAIL;
}

int DatagramEndpoint::set_name(const ofi::Address &wanted) noexcept
{
    const std::lock_guard guard(manager_.mutex());
    return enabled_ ? -FI_EOPBADSTATE : take_name(wanted);
}

int DatagramEndpoint::get_name(void *addr, std::size_t *length) noexcept
{
    const std::lock_guard guard(manager_.mutex());
    return !name_ ? -FI_EOPBADSTATE : local_.copy_to(addr, length);
}

bool DatagramEndpoint::accepts(const ofi::Address &destination) const noexcept
{
    if (!local_.is_wildcard())
        return local_.same_host(destination);
    return local_.sa.sa_family == AF_INET6 || destination.sa.sa_family == AF_INET;
}

int DatagramEndpoint::join_queues() noexcept
{
    {
        const core::SpinGuard guard(rx_queue_->lock);
        if (const int error = rx_queue_->inlets.add(*this, bit_))
            return error;
        ++rx_queue_->endpoints;
    }
    {
        const core::SpinGuard guard(tx_queue_->lock);
        ++tx_queue_->endpoints;
    }
    if (send_counter_)
        send_counter_->add_source(tx_queue_->source());
    if (receive_counter_)
        receive_counter_->add_source(rx_queue_->source());
    return 0;
}

int DatagramEndpoint::enable() noexcept
{
    if (enabled_)
        return -FI_EOPBADSTATE;
    if (!av_)
        return -FI_ENOAV;
    if ((!tx_queue_ && !send_counter_) || (!rx_queue_ && !receive_counter_))
        return -FI_ENOCQ;
    int error = 0;
    if ((!tx_queue_ && (error = ofi::own_queue(domain_, open_cq, hidden_queue_, tx_queue_))) ||
        (!rx_queue_ && (error = ofi::own_queue(domain_, open_cq, hidden_queue_, rx_queue_))))
        return error;
    if (paced_ && (error = open_timer()))
        return error;
    if (!has_taker()) {
        receives_.reset(new (std::nothrow) RxQueue(rx_size_, domain_.needs_locks()));
        if (!receives_)
            return -FI_ENOMEM;
    }
    const std::lock_guard guard(manager_.mutex());
    if (!name_) {
        ofi::Address wanted = local_;
        if (wanted.empty()) {
            wanted.sa.sa_family = AF_INET;
            wanted = wanted.reachable();
        }
        if ((error = take_name(wanted)))
            return error;
    }
    if ((error = join_queues()))
        return error;
    enabled_ = true;
    return manager_.watch(*this, name_.socket(), EPOLLIN | EPOLLET, true) ? 0 : -errno;
}

int DatagramEndpoint::open_timer() noexcept
{
    const core::SpinGuard guard(tx_queue_->lock);
    return tx_queue_->open_timer();
}

int DatagramEndpoint::set_limit(const void *value, std::size_t length) noexcept
{
    fi_vma_rate_limit limit;
    if (const int error = ofi::read_rate_limit(value, length, limit))
        return error;
    if (enabled_ && limit.rate) {
        if (const int error = open_timer())
            return error;
    }
    const core::SpinGuard guard(lock_);
    pacer_.set(core::monotonic_ns(), limit.rate, limit.max_burst, limit.typical_packet);
    paced_ = pacer_.limited();
    if (!held_until_)
        return 0;
    held_until_ = 0;
    const core::SpinGuard queue_guard(tx_queue_->lock);
    tx_queue_->wait_until(timer_, 0); // who was refused may try again
    return 0;
}

int DatagramEndpoint::meet(const void *value, std::size_t length) noexcept
{
    fi_addr_t to = FI_ADDR_UNSPEC;
    if (!value || length != sizeof to)
        return -FI_EINVAL;
    std::memcpy(&to, value, sizeof to);
    if (!enabled_)
        return -FI_EOPBADSTATE;
    int result;
    bool met;
    {
        const core::SpinGuard guard(lock_);
        Outlet *const outlet = membership_of(to) ? nullptr : outlet_of(to);
        result = outlet ? outlet->meet() : -FI_EINVAL;
        met = met_;
    }
    if (met)
        welcome();
    return result;
}

int DatagramEndpoint::warm(const void *value, std::size_t length) noexcept
{
    fi_vma_warm wanted{};
    if (!value || length != sizeof wanted)
        return -FI_EINVAL;
    std::memcpy(&wanted, value, sizeof wanted);
    const core::SpinGuard guard(lock_);
    const Outlet *const outlet = !enabled_ || membership_of(wanted.to) ? nullptr : outlet_of(wanted.to);
    return outlet && outlet->warm(std::min<std::uint64_t>(wanted.length, kMaxDatagram)) ? 0 : -FI_ENOTCONN;
}

int DatagramEndpoint::set_option(int name, const void *value, std::size_t length) noexcept
{
    if (static_cast<unsigned>(name) == FI_OPT_VMA_RATE_LIMIT)
        return set_limit(value, length);
    if (static_cast<unsigned>(name) == FI_OPT_VMA_MEET)
        return meet(value, length);
    if (static_cast<unsigned>(name) == FI_OPT_VMA_WARM)
        return warm(value, length);
    if (static_cast<unsigned>(name) != FI_OPT_VMA_TAKER)
        return -FI_ENOPROTOOPT;
    if (enabled_)
        return -FI_EOPBADSTATE;
    fi_vma_taker taker{};
    if (!value || length != sizeof taker)
        return -FI_EINVAL;
    std::memcpy(&taker, value, sizeof taker);
    if (!taker.take && !taker.keep)
        return -FI_EINVAL;
    taker_ = taker;
    return 0;
}

int DatagramEndpoint::get_option(int name, void *value, std::size_t *length) noexcept
{
    std::uint64_t count = 0;
    switch (static_cast<unsigned>(name)) {
    case FI_OPT_VMA_RATE_LIMIT: {
        const core::SpinGuard guard(lock_);
        return ofi::give_option(ofi::limit_of(pacer_), value, length);
    }
    case FI_OPT_VMA_RATE_DUE: {
        const core::SpinGuard guard(lock_);
        return ofi::give_option(held_until_, value, length);
    }
    case FI_OPT_VMA_TX_DROPS: {
        const core::SpinGuard guard(lock_);
        count = tx_dropped_;
        break;
    }
    case FI_OPT_VMA_RX_DROPS: {
        if (!enabled_)
            return -FI_EOPBADSTATE;
        const core::SpinGuard guard(rx_queue_->lock);
        count = rx_dropped_;
        for (const Inlet *inlet = inlets_; inlet; inlet = inlet->next)
            count += inlet->dropped();
        break;
    }
    default:
        return -FI_ENOPROTOOPT;
    }
    return ofi::give_option(count, value, length);
}

// ---- who comes and goes: connection management's side, with the CM lock held -------------------------------------------

void DatagramEndpoint::on_ready(std::uint32_t) noexcept
{
    free_retired();
    for (;;) {
        core::UniqueFd socket = core::make_fd(
            [this] { return core::kernel::accept4(name_.socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
        if (!socket) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN)
                VMA_WARN(ep_ctrl, "cannot take a sender of datagrams: %s", std::strerror(errno));
            return;
        }
        std::unique_ptr<Inlet> inlet(new (std::nothrow) Inlet(*this, std::move(socket)));
        if (inlet && inlet->start())
            strangers_.push_back(std::move(inlet));
    }
}

void DatagramEndpoint::refuse(Inlet &inlet) noexcept
{
    std::erase_if(strangers_, [&](const std::unique_ptr<Inlet> &one) { return one.get() == &inlet; });
}

void DatagramEndpoint::arrived(Inlet &inlet) noexcept
{
    for (std::unique_ptr<Inlet> &one : strangers_) {
        if (one.get() != &inlet)
            continue;
        static_cast<void>(one.release());
        std::swap(one, strangers_.back());
        strangers_.pop_back();
        break;
    }
    inlet.next = arrivals_.load(std::memory_order_relaxed);
    while (!arrivals_.compare_exchange_weak(inlet.next, &inlet, std::memory_order_acq_rel)) {
    }
    attend_soon();
}

void DatagramEndpoint::free_retired() noexcept
{
    for (Inlet *inlet = retired_.exchange(nullptr, std::memory_order_acquire); inlet;) {
        const std::unique_ptr<Inlet> owner(inlet);
        inlet = inlet->next;
    }
}

// ---- the queue's side, with its lock held ------------------------------------------------------------------------------

void DatagramEndpoint::attend_soon() noexcept
{
    rx_queue_->doorbell.ring_self(bit_);
    rx_queue_->doorbell.wake_if_sleeping();
}

void DatagramEndpoint::on_bell() noexcept
{
    for (Inlet *inlet = arrivals_.exchange(nullptr, std::memory_order_acquire); inlet;) {
        Inlet *const following = inlet->next;
        inlet->next = inlets_;
        inlets_ = inlet;
        if (inlet->attach())
            inlet->on_bell();
        else
            retire(*inlet);
        inlet = following;
    }
    const bool stalled = stalled_.load(std::memory_order_relaxed);
    for (Inlet *inlet = inlets_; inlet;) {
        Inlet *const following = inlet->next;
        if (inlet->ended() && !inlet->ready())
            retire(*inlet);
        else if (inlet->stalled() && !stalled)
            rx_queue_->doorbell.ring_self(inlet->bit());
        inlet = following;
    }
}

void DatagramEndpoint::retire(Inlet &inlet) noexcept
{
    for (Inlet **at = &inlets_; *at; at = &(*at)->next) {
        if (*at == &inlet) {
            *at = inlet.next;
            break;
        }
    }
    rx_dropped_ += inlet.dropped();
    inlet.detach();
    inlet.next = retired_.load(std::memory_order_relaxed);
    while (!retired_.compare_exchange_weak(inlet.next, &inlet, std::memory_order_acq_rel)) {
    }
}

void DatagramEndpoint::cut(Inlet &inlet) noexcept
{
    retire(inlet);
}

// ---- the end -----------------------------------------------------------------------------------------------------------

void DatagramEndpoint::leave_queues() noexcept
{
    if (send_counter_)
        send_counter_->remove_source(tx_queue_->source());
    if (receive_counter_)
        receive_counter_->remove_source(rx_queue_->source());
    {
        const core::SpinGuard guard(rx_queue_->lock);
        while (Inlet *inlet = inlets_)
            retire(*inlet);
        rx_queue_->inlets.remove(static_cast<BellHandler &>(*this), bit_);
        rx_queue_->forget(this);
        --rx_queue_->endpoints;
    }
    const core::SpinGuard guard(tx_queue_->lock);
    tx_queue_->paced.wheel.remove(timer_);
    tx_queue_->forget(this);
    --tx_queue_->endpoints;
}

DatagramEndpoint::~DatagramEndpoint()
{
    const std::lock_guard guard(manager_.mutex());
    if (enabled_) {
        manager_.unwatch(name_.socket());
        name_.reset(); // from now on nobody comes
        strangers_.clear();
        leave_queues();
        for (Inlet *inlet = arrivals_.exchange(nullptr, std::memory_order_acquire); inlet;) {
            const std::unique_ptr<Inlet> owner(inlet);
            inlet = inlet->next;
            owner->detach();
        }
        free_retired();
    }
    outlets_.clear();
    if (av_)
        av_->refs.fetch_sub(1, std::memory_order_release);
    if (eq_)
        eq_->refs.fetch_sub(1, std::memory_order_release);
}

} // namespace vma::local
