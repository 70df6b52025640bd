// SPDX-License-Identifier: BSD-2-Clause
#include "ether/stream/tcp_option.hpp"

#include <cstring>

#include <rdma/fi_errno.h>

#include "ofi/give_option.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ether {
namespace {

constexpr std::uint8_t kEcnBits = 3; // of the traffic class; TCP's own

struct Switch {
    std::uint8_t fi_vma_tcp::*option;
    bool inet::TcpSettings::*setting;
};

constexpr Switch kSwitches[] = {
    {&fi_vma_tcp::keepalive, &inet::TcpSettings::keepalive},
    {&fi_vma_tcp::nodelay, &inet::TcpSettings::nodelay},
    {&fi_vma_tcp::cork, &inet::TcpSettings::cork},
    {&fi_vma_tcp::quick_ack, &inet::TcpSettings::quick_ack},
    {&fi_vma_tcp::timestamps, &inet::TcpSettings::timestamps},
    {&fi_vma_tcp::sack, &inet::TcpSettings::sack},
    {&fi_vma_tcp::window_scaling, &inet::TcpSettings::window_scaling},
    {&fi_vma_tcp::ecn, &inet::TcpSettings::ecn},
};

bool is_valid(const fi_vma_tcp &option) noexcept
{
    constexpr std::uint32_t kLeastSegment = 64;
    constexpr std::uint8_t kUnused[sizeof option.unused] = {};
    for (const Switch &one : kSwitches) {
        if (option.*one.option > 1)
            return false;
    }
    const bool segment =
        option.max_segment == 0 || (option.max_segment >= kLeastSegment && option.max_segment <= 65535);
    return segment && option.send_buffer != 0 && option.receive_buffer != 0 && option.keepalive_idle != 0 &&
           option.keepalive_interval != 0 && option.keepalive_probes != 0 && option.hop_limit != 0 &&
           option.congestion <= FI_VMA_NEWRENO && (option.traffic_class & kEcnBits) == 0 &&
           std::memcmp(option.unused, kUnused, sizeof kUnused) == 0;
}

} // namespace

int read_tcp_option(const void *value, std::size_t length, inet::TcpSettings &settings) noexcept
{
    fi_vma_tcp option;
    if (value == nullptr || length != sizeof option)
        return -FI_EINVAL;
    std::memcpy(&option, value, sizeof option);
    if (!is_valid(option))
        return -FI_EINVAL;
    settings.send_buffer = option.send_buffer;
    settings.receive_buffer = option.receive_buffer;
    settings.most_mss = static_cast<std::uint16_t>(option.max_segment);
    settings.user_timeout = option.user_timeout * inet::kMillisecond;
    settings.keepalive_idle = option.keepalive_idle * inet::kSecond;
    settings.keepalive_interval = option.keepalive_interval * inet::kSecond;
    settings.rate = option.rate;
    settings.syn_rate = option.syn_rate;
    settings.quick_ack_most = option.quick_ack_most;
    settings.keepalive_probes = option.keepalive_probes;
    settings.syn_retries = option.syn_retries;
    settings.congestion =
        option.congestion == FI_VMA_CUBIC ? inet::CongestionAlgorithm::kCubic : inet::CongestionAlgorithm::kReno;
    settings.traffic_class = option.traffic_class;
    settings.hop_limit = option.hop_limit;
    for (const Switch &one : kSwitches)
        settings.*one.setting = option.*one.option != 0;
    return 0;
}

int give_tcp_option(const inet::TcpSettings &settings, void *value, std::size_t *length) noexcept
{
    fi_vma_tcp option{};
    option.send_buffer = settings.send_buffer;
    option.receive_buffer = settings.receive_buffer;
    option.max_segment = settings.most_mss;
    option.user_timeout = static_cast<std::uint32_t>(settings.user_timeout / inet::kMillisecond);
    option.keepalive_idle = static_cast<std::uint32_t>(settings.keepalive_idle / inet::kSecond);
    option.keepalive_interval = static_cast<std::uint32_t>(settings.keepalive_interval / inet::kSecond);
    option.rate = settings.rate;
    option.syn_rate = settings.syn_rate;
    option.quick_ack_most = settings.quick_ack_most;
    option.keepalive_probes = settings.keepalive_probes;
    option.syn_retries = settings.syn_retries;
    option.congestion = settings.congestion == inet::CongestionAlgorithm::kCubic ? FI_VMA_CUBIC : FI_VMA_NEWRENO;
    option.traffic_class = settings.traffic_class;
    option.hop_limit = settings.hop_limit;
    for (const Switch &one : kSwitches)
        option.*one.option = settings.*one.setting ? 1 : 0;
    return ofi::give_option(option, value, length);
}

} // namespace vma::ether
