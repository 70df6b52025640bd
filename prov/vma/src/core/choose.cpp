// SPDX-License-Identifier: BSD-2-Clause
#include "core/choose.hpp"

#include <algorithm>

#include "core/log.hpp"

namespace vma::core {

bool admitted(const Candidate &candidate, const Filters &filters) noexcept
{
    if (!filters.admits_device(candidate.name)) {
        VMA_DEBUG(fabric, "device %s is not used: it is filtered out by its name", candidate.name.c_str());
        return false;
    }
    if (!candidate.on_wire || !filters.choose_interfaces())
        return true;
    const auto admits = [&](const Interface &interface) { return filters.admits(interface); };
    if (std::ranges::any_of(candidate.interfaces, admits))
        return true;
    VMA_DEBUG(fabric, "device %s is not used: its %zu interfaces and their addresses are filtered out",
              candidate.name.c_str(), candidate.interfaces.size());
    return false;
}

std::vector<std::size_t> choose(std::span<const Candidate> candidates, const Filters &filters,
                                const Surroundings &surroundings) noexcept
{
    std::vector<std::size_t> order;
    std::vector<std::size_t> wired;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (admitted(candidates[i], filters))
            (candidates[i].on_wire ? wired : order).push_back(i);
    }
    if (wired.size() < 2) {
        order.insert(order.end(), wired.begin(), wired.end());
        return order;
    }
    std::vector<DeviceRef> devices;
    devices.reserve(wired.size());
    for (const std::size_t i : wired)
        devices.push_back({candidates[i].name, candidates[i].node});
    const Where where = surroundings.where != nullptr ? *surroundings.where : calling_thread();
    for (const std::size_t place : surroundings.topology().rank(devices, where))
        order.push_back(wired[place]);
    return order;
}

} // namespace vma::core
