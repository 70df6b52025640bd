// SPDX-License-Identifier: BSD-2-Clause
// The beginning and the end of a datagram endpoint, and its options.
#include "local/dgram/endpoint.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

#include <rdma/fi_errno.h>

#include "core/clock.hpp"
#include "local/cm/manager.hpp"
#include "ofi/give_option.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/rate_limit.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

DatagramEndpoint::DatagramEndpoint(ofi::Domain &domain, const fi_info &info) noexcept
    : RingEndpoint(domain, info, NameKind::datagrams, FI_SEND | FI_RECV),
      source_errors_((info.caps & FI_SOURCE_ERR) != 0),
      rx_size_(info.rx_attr && info.rx_attr->size ? info.rx_attr->size : ofi::kDefaultQueueSize)
{
}

DatagramEndpoint::~DatagramEndpoint()
{
    const std::lock_guard guard(manager_.mutex());
    if (enabled_) {
        const core::SpinGuard queue_guard(tx_queue_->lock);
        tx_queue_->paced.wheel.remove(timer_);
    }
    close();
    outlets_.clear();
}

int DatagramEndpoint::prepare() noexcept
{
    if (paced_) {
        if (const int error = open_timer())
            return error;
    }
    if (has_taker())
        return 0;
    receives_.reset(new (std::nothrow) RxQueue(rx_size_, domain_.needs_locks()));
    return receives_ ? 0 : -FI_ENOMEM;
}

// What it had dropped still counts.
void DatagramEndpoint::left(Inlet &inlet) noexcept
{
    rx_dropped_ += inlet.dropped();
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
    return write_locked([&](Bell &) {
        Outlet *const outlet = membership_of(to) ? nullptr : outlet_of(to);
        return outlet ? outlet->meet() : -FI_EINVAL;
    });
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

} // namespace vma::local
