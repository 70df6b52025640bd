// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/retries.hpp"

#include "core/log.hpp"
#include "core/parse_number.hpp"
#include "ofi/libfabric.hpp"

namespace vma::verbs {
namespace {

constexpr struct {
    std::uint8_t Retries::*field;
    ofi::Param param;
    const char *name;
    unsigned most;
} kVariables[] = {
    {&Retries::retry_count, ofi::Param::retry_count, "FI_VMA_RETRY_COUNT", 7},
    {&Retries::rnr_retry, ofi::Param::rnr_retry, "FI_VMA_RNR_RETRY", 7},
    {&Retries::ack_timeout, ofi::Param::ack_timeout, "FI_VMA_ACK_TIMEOUT", 31},
    {&Retries::min_rnr_timer, ofi::Param::min_rnr_timer, "FI_VMA_MIN_RNR_TIMER", 31},
};

} // namespace

Retries read_retries() noexcept
{
    Retries retries;
    for (const auto &variable : kVariables) {
        const char *text = ofi::param(variable.param);
        if (text == nullptr)
            continue;
        unsigned value = 0;
        if (core::parse_number(text, variable.most, value))
            retries.*variable.field = static_cast<std::uint8_t>(value);
        else
            VMA_WARN(fabric, "%s=%s: expected a number from 0 to %u: the default is taken", variable.name, text,
                     variable.most);
    }
    return retries;
}

} // namespace vma::verbs
