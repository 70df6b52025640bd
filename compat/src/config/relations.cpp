// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/config/relations.hpp"

#include <sys/resource.h>

#include <cstdlib>

#include "compat/src/config/aliases.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::config {

namespace {

constexpr std::int32_t kCcCubic = 1;
constexpr long long kCcAsked = 2; // as VMA writes kCcNone

using Number = std::uint32_t Params::*;

// `field` is at least `factor` times `other`, or at most half of it if `factor` is 0.
struct Limit {
    char name[32];
    Number field;
    std::uint32_t factor;
    Number other;
    char other_name[32];
};

constexpr Limit kLimits[] = {
    {"VMA_TX_WRE", &Params::tx_wre, 2, &Params::tx_wre_batching, "VMA_TX_WRE_BATCHING"},
    {"VMA_RX_WRE", &Params::rx_wre, 2, &Params::rx_wre_batching, "VMA_RX_WRE_BATCHING"},
    {"VMA_QP_COMPENSATION_LEVEL", &Params::qp_compensation_level, 1, &Params::rx_wre_batching, "VMA_RX_WRE_BATCHING"},
    {"VMA_CQ_MODERATION_COUNT", &Params::cq_moderation_count, 0, &Params::rx_wre, "VMA_RX_WRE"},
    {"VMA_CQ_AIM_MAX_COUNT", &Params::cq_aim_max_count, 0, &Params::rx_wre, "VMA_RX_WRE"},
    {"VMA_TCP_TIMER_RESOLUTION_MSEC", &Params::tcp_timer_resolution_msec, 1, &Params::timer_resolution_msec,
     "VMA_TIMER_RESOLUTION_MSEC"},
};

[[VMA_AT_STARTUP]] std::uint32_t bound_of(const Params &params, const Limit &limit)
{
    const std::uint32_t other = params.*limit.other;
    return limit.factor != 0 ? limit.factor * other : other / 2;
}

[[VMA_AT_STARTUP]] bool keeps(const Params &params, const Limit &limit)
{
    const std::uint32_t value = params.*limit.field;
    return limit.factor != 0 ? value >= bound_of(params, limit) : value <= bound_of(params, limit);
}

} // namespace

namespace {

// Before profiles and variables.
[[VMA_AT_STARTUP]] void preset(std::uint32_t &value, const char *name, std::uint32_t usual, std::uint32_t wanted)
{
    if (value == usual && variable(name) == nullptr)
        value = wanted;
}

// The library's own descriptors are taken with the first connection then, before the program has those that it needs.
[[VMA_AT_STARTUP]] bool has_descriptors_to_spare()
{
    constexpr rlim_t kEnough = 256;
    rlimit limit = {};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= kEnough;
}

} // namespace

[[VMA_AT_STARTUP]] void relate(Params &params)
{
    const bool no_profile = static_cast<Spec>(params.spec) == Spec::kNone;
    params.rx_poll_learns = no_profile && variable("VMA_RX_POLL") == nullptr;
    params.select_poll_learns = no_profile && variable("VMA_SELECT_POLL") == nullptr;
    params.rx_poll_gives_way = params.rx_poll < 0 && variable("VMA_RX_POLL") == nullptr;
    params.select_poll_gives_way = params.select_poll < 0 && variable("VMA_SELECT_POLL") == nullptr;
    params.ring_per_set = no_profile && variable("VMA_RING_ALLOCATION_LOGIC_RX") == nullptr && !params.socketxtreme;
    params.offload_learns = no_profile && variable("VMA_LIFT_AFTER") == nullptr;
    // However few descriptors there are: by the time that something was learned, the library's own are open.
    params.first_learns = params.offload_learns && variable("VMA_LIFT_AT_CONNECT") == nullptr;
    if (params.socketxtreme) { // the program polls, and its packets are the device's
        preset(params.rx_wre, "VMA_RX_WRE", 16000, 1024);
        preset(params.gro_streams_max, "VMA_GRO_STREAMS_MAX", 32, 0);
        params.progress_interval = 0;
    }
    const bool says_when = variable("VMA_LIFT_AFTER") != nullptr && variable("VMA_LIFT_AT_CONNECT") == nullptr;
    if (says_when)
        params.lift_at_connect = 0;
    params.opens_early = (params.lift_at_connect != 0 || params.lift_after == 1) && has_descriptors_to_spare();
    if (!params.opens_early)
        params.lift_at_connect = 0;
    for (const Limit &limit : kLimits)
        if (!keeps(params, limit))
            params.*limit.field = bound_of(params, limit);
    if (params.tcp_cc_algo == kCcNone)
        params.tcp_cc_algo = kCcCubic;
    if (params.rx_poll < 0 || params.select_poll < 0)
        params.cq_moderation = false; // nobody sleeps for an interrupt
    if (!params.cq_moderation)
        params.cq_aim_interval_msec = 0;
}

void warn_about_relations()
{
    for (const Limit &limit : kLimits) {
        const char *const value = variable(limit.name);
        const std::uint32_t used = params().*limit.field;
        if (value != nullptr && used == bound_of(params(), limit) && std::strtoll(value, nullptr, 10) != used)
            VMA_LOG(kWarn, "%s=%s is not valid (expected %s %u, %s %s): using %u", limit.name, value,
                    limit.factor != 0 ? "at least" : "at most", used,
                    limit.factor == 0   ? "half of"
                    : limit.factor == 2 ? "twice"
                                        : "as much as",
                    limit.other_name, used);
    }
    const char *const congestion = variable("VMA_TCP_CC_ALGO");
    if (congestion != nullptr && std::strtoll(congestion, nullptr, 10) == kCcAsked)
        VMA_LOG(kWarn, "VMA_TCP_CC_ALGO=2 is not to be had: without congestion control a sender harms all others; "
                       "using CUBIC");
}

} // namespace vma::config
