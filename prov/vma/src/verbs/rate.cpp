// SPDX-License-Identifier: BSD-2-Clause
// Rate limits of endpoints (FI_OPT_VMA_RATE_LIMIT): the device's own limiter where it has one for this rate, else a
// pacer that refuses what is not due.
#include <cerrno>
#include <cstring>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ofi/rate_limit.hpp"
#include "verbs/clock.hpp"
#include "verbs/endpoint.hpp"

namespace vma::verbs {
namespace {

constexpr bool is_none(std::uint64_t rate) noexcept
{
    return rate == 0 || rate == Pacer::kUnlimited;
}

// In the unit of ibv_modify_qp_rate_limit(3), to the nearest; 0 where the device can't hold the rate.
std::uint32_t device_rate(const Nic &nic, std::uint64_t bytes_a_second) noexcept
{
    const std::uint64_t kbits = bytes_a_second > UINT64_MAX / 8 ? UINT64_MAX : (bytes_a_second * 8 + 500) / 1000;
    const bool fits = nic.rate_max != 0 && kbits >= nic.rate_min && kbits <= nic.rate_max && kbits > 0;
    return fits ? static_cast<std::uint32_t>(kbits) : 0;
}

} // namespace

// 0 or a negative fi_errno. With tx_lock held; the queue pair is ready to receive or to send.
int Endpoint::limit_device() noexcept
{
    ibv_qp_rate_limit_attr attr{};
    attr.rate_limit = is_none(limit.rate) ? 0 : device_rate(nic_domain(domain).nic(), limit.rate);
    attr.max_burst_sz = attr.rate_limit != 0 ? limit.max_burst : 0;
    attr.typical_pkt_sz = attr.rate_limit != 0 && attr.max_burst_sz != 0 ? limit.typical_packet : std::uint16_t{0};
    if (attr.rate_limit == 0 && !device_limited)
        return 0; // as it is already
    const int error = ibv_modify_qp_rate_limit(qp, &attr);
    device_limited = error == 0 && attr.rate_limit != 0;
    if (error != 0)
        VMA_INFO(ep_ctrl, "the device doesn't take a rate of %u kbit/s (%s): it is kept in software", attr.rate_limit,
                 std::strerror(error));
    return -error;
}

// By the device once it can, else in software. With tx_lock held.
void Endpoint::apply_limit() noexcept
{
    const bool by_device = open_for_sends.load(std::memory_order_relaxed) && limit_device() == 0 && device_limited;
    const bool in_software = !by_device && !is_none(limit.rate);
    pacer.set(now_ns(), in_software ? limit.rate : 0, limit.max_burst, limit.typical_packet);
    due = 0;
}

int Endpoint::set_limit(const void *value, std::size_t length) noexcept
{
    fi_vma_rate_limit wanted{};
    if (const int error = ofi::read_rate_limit(value, length, wanted))
        return error;
    const core::SpinGuard guard(tx_lock);
    limit = wanted;
    apply_limit();
    return 0;
}

// Software's half of a send: false where it is not due yet. With tx_lock held.
bool Endpoint::may_go(std::uint64_t bytes) noexcept
{
    const std::uint64_t now = now_ns();
    const std::uint64_t when = pacer.due(now, bytes);
    due = when > now ? when : 0;
    if (due != 0) {
        tx_queue->note_due(due);
        return false;
    }
    pacer.take(bytes);
    return true;
}

} // namespace vma::verbs
