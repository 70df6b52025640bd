// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/devices/moderation.hpp"

#include <string.h>

#include <algorithm>

#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/stats/region.hpp"

namespace vma::sock {

namespace {

constexpr std::uint64_t kSecondUs = 1'000'000;
constexpr std::uint64_t kMs = 1000;              // a second has
constexpr std::uint64_t kLargePacket = 1024;     // bytes
constexpr std::uint64_t kHighRate = 450'000;     // packets a second
constexpr std::uint64_t kMostModeration = 65535; // of ibv_modify_cq()

std::uint16_t narrow(std::uint64_t value)
{
    return static_cast<std::uint16_t>(std::min(value, kMostModeration));
}

Moderation configured()
{
    const config::Params &p = config::params();
    return {narrow(p.cq_moderation_count), narrow(p.cq_moderation_period_usec)};
}

// False: the device doesn't do such a thing.
bool apply(Device &d, Moderation wanted)
{
    if (d.moderates && wanted == d.moderation)
        return true;
    fi_vma_moderation argument = {wanted.completions, wanted.period};
    const int result = fi_control(&d.cq->fid, static_cast<int>(FI_VMA_MODERATE), &argument);
    if (result != 0) {
        d.moderates = false;
        VMA_LOG(kDebug, "device %s does not moderate interrupts: %s (VMA_CQ_MODERATION_ENABLE, vma_modify_ring())",
                d.name, strerror(-result));
        return false;
    }
    d.moderates = true;
    d.moderation = wanted;
    stats::tell_moderation(d.udp != nullptr ? stats::RingKind::kEthernet : stats::RingKind::kRdma, d.name,
                           wanted.completions, wanted.period);
    VMA_LOG(kDebug, "device %s: interrupts after %u completions or %u us", d.name, unsigned{wanted.completions},
            unsigned{wanted.period});
    return true;
}

} // namespace

Moderation fitting(std::uint64_t completions, std::uint64_t bytes, std::uint32_t milliseconds)
{
    const config::Params &p = config::params();
    if (completions == 0 || milliseconds == 0)
        return configured();
    const std::uint64_t rate = completions * kMs / milliseconds;
    if (bytes / completions < kLargePacket && rate < kHighRate)
        return {};
    const std::uint64_t interrupts = std::clamp<std::uint64_t>(p.cq_aim_interrupts_rate, 1, kSecondUs);
    const std::uint64_t count = std::min<std::uint64_t>(rate / interrupts, p.cq_aim_max_count);
    const std::uint64_t period = kSecondUs / interrupts - kSecondUs / std::max(rate, interrupts);
    return {narrow(count), narrow(std::min<std::uint64_t>(period, p.cq_aim_max_period_usec))};
}

void moderate(Device &d)
{
    if (g_engine.devices.is_moderated)
        apply(d, g_engine.devices.moderation);
    else if (config::params().cq_moderation)
        apply(d, configured());
}

unsigned moderate_as_asked(std::uint32_t completions, std::uint32_t period)
{
    const LockGuard guard(g_offload.lock);
    g_engine.devices.is_moderated = true;
    g_engine.devices.moderation = {narrow(completions), narrow(period)};
    unsigned taken = 0;
    each_remote_device([&taken](Device &d) { taken += apply(d, g_engine.devices.moderation) ? 1 : 0; });
    return taken;
}

void adapt_moderation(std::uint32_t turns)
{
    const std::uint32_t interval = config::params().cq_aim_interval_msec;
    if (interval == 0 || g_engine.devices.is_moderated)
        return;
    const std::uint32_t turns_per_look = helper_turns_in(interval);
    if (turns % turns_per_look != 0)
        return;
    each_remote_device([turns_per_look](Device &d) {
        if (!d.moderates || d.udp != nullptr) // entries of a port's queue are no packets
            return;
        const std::uint64_t completions = __atomic_load_n(&d.completions, __ATOMIC_RELAXED);
        const std::uint64_t bytes = __atomic_load_n(&d.bytes, __ATOMIC_RELAXED);
        const std::uint32_t milliseconds = turns_per_look * helper_turn_ms();
        apply(d, fitting(completions - d.seen_completions, bytes - d.seen_bytes, milliseconds));
        d.seen_completions = completions;
        d.seen_bytes = bytes;
    });
}

} // namespace vma::sock
