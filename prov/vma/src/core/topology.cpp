// SPDX-License-Identifier: BSD-2-Clause
// Questions to a topology. How it is read is in topology_read.cpp.
#include "core/topology.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "core/log.hpp"
#include "core/made_once.hpp"
#include "core/sysfs.hpp"

namespace vma::core {
namespace {

constexpr std::size_t kBitsPerWord = sizeof(unsigned long) * CHAR_BIT;
constexpr unsigned kHundredths = 100;
constexpr unsigned kFarAway = UINT_MAX; // of an unknown device

// The process's; it doesn't change once it is read, so it needs no lock.
constinit MadeOnce<Topology> g_machine;

CpuSet single(int cpu)
{
    CpuSet set;
    if (cpu >= 0 && static_cast<std::size_t>(cpu) < kMaxCpus)
        set.set(static_cast<std::size_t>(cpu));
    return set;
}

} // namespace

Where calling_thread() noexcept
{
    Where where;
    where.cpu = ::sched_getcpu();
    // Past glibc's, whose cpu_set_t ends at 1024 processors.
    std::array<unsigned long, kMaxCpus / kBitsPerWord> words{};
    const long bytes = ::syscall(SYS_sched_getaffinity, 0, sizeof(words), words.data());
    const std::size_t bits = bytes > 0 ? static_cast<std::size_t>(bytes) * CHAR_BIT : 0;
    for (std::size_t cpu = 0; cpu < bits; ++cpu)
        where.cpus[cpu] = ((words[cpu / kBitsPerWord] >> (cpu % kBitsPerWord)) & 1U) != 0;
    return where;
}

const Topology::Device *Topology::find(std::string_view name) const noexcept
{
    const auto found = std::ranges::find(devices_, name, &Device::name);
    return found != devices_.end() ? &*found : nullptr;
}

std::optional<unsigned> Topology::mean_distance(std::span<const std::size_t> from, const CpuSet &cpus) const noexcept
{
    std::uint64_t sum = 0;
    std::uint64_t count = 0;
    for (std::size_t to = 0; to < nodes_.size(); ++to) {
        const std::size_t cpus_there = (nodes_[to].cpus & cpus).count();
        for (const std::size_t node : from)
            sum += std::uint64_t{distances_[node * nodes_.size() + to]} * cpus_there;
        count += from.size() * cpus_there;
    }
    if (count == 0)
        return std::nullopt;
    return static_cast<unsigned>(sum * kHundredths / count);
}

std::optional<unsigned> Topology::distance(std::string_view device, const CpuSet &cpus) const noexcept
{
    const Device *const found = find(device);
    return found != nullptr ? mean_distance(found->near, cpus) : std::nullopt;
}

std::optional<unsigned> Topology::distance(int node, const CpuSet &cpus) const noexcept
{
    const auto found = std::ranges::find(nodes_, node, &Node::number);
    if (found == nodes_.end())
        return std::nullopt;
    const std::size_t place[] = {static_cast<std::size_t>(found - nodes_.begin())};
    return mean_distance(place, cpus);
}

std::vector<std::size_t> Topology::rank(std::span<const DeviceRef> devices, const Where &where) const noexcept
{
    using Key = std::pair<unsigned, unsigned>; // from where the thread runs, from where it may run
    const CpuSet now = single(where.cpu);
    std::vector<Key> keys;
    for (const DeviceRef &device : devices) {
        const bool known = find(device.name) != nullptr;
        const auto from = [&](const CpuSet &cpus) {
            const auto distance_found = known ? distance(device.name, cpus) : distance(device.node, cpus);
            return distance_found.value_or(kFarAway);
        };
        keys.emplace_back(from(now), from(where.cpus));
    }
    std::vector<std::size_t> order(devices.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return keys[i]; });
    return order;
}

const Topology &machine_topology() noexcept
{
    return g_machine.get([](void *place) {
        const bool matters = !has_one_numa_node() || ::secure_getenv("HWLOC_XMLFILE") != nullptr ||
                             ::secure_getenv("HWLOC_SYNTHETIC") != nullptr;
        return new (place) Topology(matters ? Topology::this_machine().value_or(Topology()) : Topology());
    });
}

} // namespace vma::core
