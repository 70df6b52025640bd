// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/info/device_filters.hpp"

#include <atomic>

#include "core/log.hpp"
#include "ofi/libfabric.hpp"

namespace vma::ofi {
namespace {

constexpr struct {
    const char *core::FilterTexts::*text;
    Param param;
    const char *name;
} kVariables[] = {
    {&core::FilterTexts::devices, Param::device, "FI_VMA_DEVICE"},
    {&core::FilterTexts::interfaces, Param::interface, "FI_VMA_INTERFACE"},
    {&core::FilterTexts::addresses, Param::address, "FI_VMA_ADDRESS"},
    {&core::FilterTexts::ports, Param::port, "FI_VMA_PORT"},
};

// The process's, without a lock: exchange() lets one thread warn.
constinit std::atomic<bool> g_warned{false};

} // namespace

std::optional<core::Filters> device_filters() noexcept
{
    core::FilterTexts texts;
    core::Filters filters;
    for (const auto &variable : kVariables)
        texts.*variable.text = param(variable.param);
    const core::FilterError error = core::parse_filters(texts, filters);
    if (error.where == nullptr)
        return filters;
    if (!g_warned.exchange(true, std::memory_order_relaxed)) {
        for (const auto &variable : kVariables) {
            if (variable.text == error.where)
                VMA_WARN(fabric, "%s: %s: no device of this provider is used", variable.name, error.what.c_str());
        }
    }
    return std::nullopt;
}

} // namespace vma::ofi
