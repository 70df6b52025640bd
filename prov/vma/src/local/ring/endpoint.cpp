// SPDX-License-Identifier: BSD-2-Clause
// The life of an endpoint that others write rings for: binding, its name, who comes and goes, the end.
#include "local/ring/endpoint.hpp"

#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <rdma/fi_errno.h>

#include "core/fd.hpp"
#include "core/kernel.hpp"
#include "core/log.hpp"
#include "local/cm/manager.hpp"
#include "ofi/av.hpp"
#include "ofi/bind.hpp"
#include "ofi/eq.hpp"

namespace vma::local {
namespace {

void free_list(Inlet *inlet) noexcept
{
    while (inlet) {
        const std::unique_ptr<Inlet> owner(inlet);
        inlet = inlet->next;
    }
}

Inlet *reversed(Inlet *list) noexcept
{
    Inlet *first = nullptr;
    while (list != nullptr) {
        Inlet *const following = list->next;
        list->next = first;
        first = list;
        list = following;
    }
    return first;
}

} // namespace

RingEndpoint::RingEndpoint(ofi::Domain &domain, const fi_info &info, NameKind kind, std::uint64_t counted) noexcept
    : domain_(domain), manager_(manager_of(domain.fabric)), format_(&info), counted_(counted), kind_(kind)
{
    handle.self = this;
    lock_.set_enabled(domain.needs_locks());
    tx_flags = info.tx_attr ? info.tx_attr->op_flags : 0;
    rx_flags = info.rx_attr ? info.rx_attr->op_flags : 0;
}

RingEndpoint::~RingEndpoint()
{
    if (av_)
        av_->refs.fetch_sub(1, std::memory_order_release);
    if (eq_)
        eq_->refs.fetch_sub(1, std::memory_order_release);
}

int RingEndpoint::bind(struct fid *what, std::uint64_t flags) noexcept
{
    if (enabled_)
        return -FI_EOPBADSTATE;
    switch (what->fclass) {
    case FI_CLASS_CQ:
        return ofi::bind_queue(domain_, static_cast<Queue &>(ofi::cq_of(what)), flags, {tx_queue_, tx_selective_},
                               {rx_queue_, rx_selective_}, kind_ == NameKind::reliable);
    case FI_CLASS_CNTR:
        if ((flags & ~counted_) != 0)
            return -FI_EINVAL;
        return ofi::bind_counter(domain_, ofi::cntr_of(what), flags,
                                 {{FI_SEND, counters_.send},
                                  {FI_RECV, counters_.receive},
                                  {FI_READ, counters_.read},
                                  {FI_WRITE, counters_.write},
                                  {FI_REMOTE_READ, counters_.remote_read},
                                  {FI_REMOTE_WRITE, counters_.remote_write}});
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

int RingEndpoint::take_name(const ofi::Address &wanted) noexcept
{
    if (!wanted.is_local())
        return -FI_EADDRNOTAVAIL;
    if (!name_ || name_.port() != wanted.port()) {
        int error = 0;
        directory_ = manager_.directory(&error);
        if (!directory_)
            return error;
        PortName taken;
        if ((error = directory_->reserve(wanted.port(), taken, kind_)))
            return error;
        name_ = std::move(taken);
    }
    local_ = wanted;
    local_.set_port(name_.port());
    return 0;
}

int RingEndpoint::propose_name(const ofi::Address &wanted) noexcept
{
    if (wanted.port() != 0)
        return set_name(wanted);
    local_ = wanted;
    return wanted.is_local() ? 0 : -FI_EADDRNOTAVAIL;
}

int RingEndpoint::set_name(const ofi::Address &wanted) noexcept
{
    const std::lock_guard guard(manager_.mutex());
    return enabled_ ? -FI_EOPBADSTATE : take_name(wanted);
}

int RingEndpoint::get_name(void *addr, std::size_t *length) noexcept
{
    const std::lock_guard guard(manager_.mutex());
    return !name_ ? -FI_EOPBADSTATE : format_.copy(local_, addr, length);
}

bool RingEndpoint::accepts(const ofi::Address &destination) const noexcept
{
    if (!local_.is_wildcard())
        return local_.same_host(destination);
    return local_.sa.sa_family == AF_INET6 || destination.sa.sa_family == AF_INET;
}

// Of the half of the endpoint where what a counter counts comes about: reading the counter makes progress there.
template <typename Act> void RingEndpoint::for_counters(Act &&act) noexcept
{
    for (ofi::Cntr *counter : {counters_.send, counters_.read, counters_.write}) {
        if (counter)
            act(*counter, *tx_queue_);
    }
    for (ofi::Cntr *counter : {counters_.receive, counters_.remote_read, counters_.remote_write}) {
        if (counter)
            act(*counter, *rx_queue_);
    }
}

// In a domain of streams, as libvma.so has it, new senders are for who reads the event queue.
int RingEndpoint::open_gate() noexcept
{
    if (gate_ || !domain_.datagrams)
        return 0;
    gate_ = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
    return gate_ ? 0 : -errno;
}

bool RingEndpoint::let_wake(int fd) noexcept
{
    return !gate_ || core::watch_fd(gate_.get(), fd);
}

void RingEndpoint::let_wake_no_more(int fd) noexcept
{
    if (gate_ && !domain_.fabric.orphaned())
        core::unwatch_fd(gate_.get(), fd);
}

int RingEndpoint::join_queues() noexcept
{
    int error = 0;
    {
        const core::SpinGuard guard(rx_queue_->lock);
        if ((error = rx_queue_->add_gate(gate_.get())) != 0)
            return error;
        if ((error = rx_queue_->inlets.add(*this, bit_)) != 0) {
            rx_queue_->remove_gate(gate_.get());
            return error;
        }
        ++rx_queue_->endpoints;
        ++rx_queue_->ring_halves;
    }
    {
        const core::SpinGuard guard(tx_queue_->lock);
        if (tx_queue_ != rx_queue_)
            error = tx_queue_->add_gate(gate_.get());
        if (error == 0) {
            ++tx_queue_->endpoints;
            ++tx_queue_->ring_halves;
        }
    }
    if (error != 0) {
        const core::SpinGuard guard(rx_queue_->lock);
        rx_queue_->remove_gate(gate_.get());
        rx_queue_->inlets.remove(static_cast<BellHandler &>(*this), bit_);
        --rx_queue_->endpoints;
        --rx_queue_->ring_halves;
        return error;
    }
    for_counters([](ofi::Cntr &counter, Queue &queue) { counter.add_source(queue.source()); });
    return 0;
}

int RingEndpoint::ensure_name() noexcept
{
    if (name_)
        return 0;
    ofi::Address wanted = local_;
    if (wanted.empty()) {
        wanted.sa.sa_family = AF_INET;
        wanted = wanted.reachable();
    }
    return take_name(wanted);
}

void RingEndpoint::drop_name() noexcept
{
    name_.reset();
    local_.set_port(0);
}

int RingEndpoint::enable() noexcept
{
    if (enabled_)
        return -FI_EOPBADSTATE;
    if (!av_)
        return -FI_ENOAV;
    const bool tx_counted = counters_.send || counters_.read || counters_.write;
    const bool rx_counted = counters_.receive || counters_.remote_read || counters_.remote_write;
    if ((!tx_queue_ && !tx_counted) || (!rx_queue_ && !rx_counted))
        return -FI_ENOCQ;
    int error = 0;
    if ((!tx_queue_ && (error = ofi::own_queue(domain_, open_cq, hidden_queue_, tx_queue_))) ||
        (!rx_queue_ && (error = ofi::own_queue(domain_, open_cq, hidden_queue_, rx_queue_))))
        return error;
    if ((error = prepare()))
        return error;
    const std::lock_guard guard(manager_.mutex());
    if ((error = ensure_name()) || (error = open_gate()) || (error = join_queues()))
        return error;
    enabled_ = true;
    return manager_.watch(*this, name_.socket(), EPOLLIN | EPOLLET, true) && let_wake(name_.socket()) ? 0 : -errno;
}

std::unique_ptr<Outlet> RingEndpoint::make_outlet(const ofi::Address &address, bool told) noexcept
{
    ofi::Address source = local_;
    if (source.is_wildcard()) {
        source = address;
        source.set_port(local_.port());
    }
    // Another host's port is nobody's here: what is sent to it is lost, as on a wire.
    const std::uint16_t port = address.is_local() ? address.port() : std::uint16_t{0};
    RingEndpoint *const who = told ? this : nullptr;
    std::unique_ptr<Outlet> outlet(new (std::nothrow) Outlet(manager_, *directory_, source, address,
                                                             directory_->name_of(port, kind_), false, met_, who));
    if (outlet)
        outlet->introduce_as(name_.incarnation());
    return outlet;
}

// Who sends to its own process has nobody but itself to tell the receiver of it: the first record is there when the
// receiver's queue is read next, as the later ones are.
void RingEndpoint::welcome() noexcept
{
    {
        const core::SpinGuard guard(lock_);
        met_ = false;
    }
    manager_.progress(true);
}

// ---- what derived classes leave out ---------------------------------------------------------------------------------

int RingEndpoint::prepare() noexcept
{
    return 0;
}

bool RingEndpoint::is_member(const ofi::Address &) const noexcept
{
    return false;
}

bool RingEndpoint::begin_visit(Inlet &) noexcept
{
    return true;
}

void RingEndpoint::end_visit(Inlet &) noexcept {}

void RingEndpoint::made_room(Inlet &) noexcept {}

void RingEndpoint::joined(Inlet &) noexcept {}

void RingEndpoint::left(Inlet &) noexcept {}

void RingEndpoint::attend() noexcept {}

// ---- who comes and goes: connection management's side, with the CM lock held ----------------------------------------

void RingEndpoint::on_ready(std::uint32_t) noexcept
{
    free_retired();
    for (;;) {
        core::UniqueFd socket = core::make_fd(
            [this] { return core::kernel::accept4(name_.socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
        if (!socket) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN) {
                VMA_WARN(ep_ctrl, "cannot take a sender of datagrams: %s", std::strerror(errno));
                deaf_ = true;
                let_wake_no_more(name_.socket()); // else who sleeps is woken for nothing, again and again
            }
            return;
        }
        if (deaf_)
            deaf_ = !let_wake(name_.socket());
        std::unique_ptr<Inlet> inlet(new (std::nothrow) Inlet(*this, std::move(socket)));
        if (inlet && inlet->start())
            strangers_.push_back(std::move(inlet));
    }
}

void RingEndpoint::refuse(Inlet &inlet) noexcept
{
    std::erase_if(strangers_, [&](const std::unique_ptr<Inlet> &one) { return one.get() == &inlet; });
}

void RingEndpoint::arrived(Inlet &inlet) noexcept
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

// Under the queue's lock, as one may have been retired in the middle of a visit that goes on.
void RingEndpoint::free_retired() noexcept
{
    if (retired_.load(std::memory_order_relaxed) == nullptr)
        return;
    Inlet *first;
    {
        const core::SpinGuard guard(rx_queue_->lock);
        first = retired_.exchange(nullptr, std::memory_order_acquire);
    }
    free_list(first);
}

// ---- the queue's side, with its lock held ---------------------------------------------------------------------------

void RingEndpoint::attend_soon() noexcept
{
    rx_queue_->doorbell.ring_self(bit_);
    rx_queue_->doorbell.wake_if_sleeping();
}

void RingEndpoint::on_bell() noexcept
{
    // In the order in which they came, as one may be the successor of another.
    for (Inlet *inlet = reversed(arrivals_.exchange(nullptr, std::memory_order_acquire)); inlet;) {
        Inlet *const following = inlet->next;
        inlet->next = inlets_;
        inlets_ = inlet;
        if (inlet->attach())
            joined(*inlet);
        else
            retire(*inlet);
        if (inlet->attached())
            inlet->on_bell();
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
    attend();
}

void RingEndpoint::retire(Inlet &inlet) noexcept
{
    for (Inlet **at = &inlets_; *at; at = &(*at)->next) {
        if (*at == &inlet) {
            *at = inlet.next;
            break;
        }
    }
    left(inlet);
    inlet.detach();
    inlet.next = retired_.load(std::memory_order_relaxed);
    while (!retired_.compare_exchange_weak(inlet.next, &inlet, std::memory_order_acq_rel)) {
    }
}

// ---- the end --------------------------------------------------------------------------------------------------------

void RingEndpoint::leave_queues() noexcept
{
    for_counters([](ofi::Cntr &counter, Queue &queue) { counter.remove_source(queue.source()); });
    {
        const core::SpinGuard guard(rx_queue_->lock);
        while (Inlet *inlet = inlets_)
            retire(*inlet);
        rx_queue_->inlets.remove(static_cast<BellHandler &>(*this), bit_);
        rx_queue_->remove_gate(gate_.get());
        rx_queue_->forget(owner());
        --rx_queue_->endpoints;
        --rx_queue_->ring_halves;
    }
    const core::SpinGuard guard(tx_queue_->lock);
    tx_queue_->remove_gate(gate_.get());
    tx_queue_->forget(owner());
    --tx_queue_->endpoints;
    --tx_queue_->ring_halves;
}

void RingEndpoint::close() noexcept
{
    if (!enabled_)
        return;
    let_wake_no_more(name_.socket());
    manager_.unwatch(name_.socket());
    name_.reset(); // from now on nobody comes
    strangers_.clear();
    leave_queues();
    for (Inlet *inlet = arrivals_.exchange(nullptr, std::memory_order_acquire); inlet;) {
        const std::unique_ptr<Inlet> owner(inlet);
        inlet = inlet->next;
        owner->detach();
    }
    free_list(retired_.exchange(nullptr, std::memory_order_acquire)); // the queue may be gone by now
}

} // namespace vma::local
