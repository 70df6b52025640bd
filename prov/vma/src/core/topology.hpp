// SPDX-License-Identifier: BSD-2-Clause
// Where processors and devices lie in the machine: which NUMA node each device is on, and how far that is from a
// thread. It is read once through hwloc into plain values; nothing of hwloc is kept, and a device that is plugged in
// later is not in it. Which devices may be used is decided elsewhere (choose.hpp).
#pragma once

#include <bitset>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vma::core {

inline constexpr std::size_t kMaxCpus = 8192; // the most that Linux can be built for
inline constexpr int kMaxNodes = 1024;        // likewise
inline constexpr int kNoNode = -1;

using CpuSet = std::bitset<kMaxCpus>;

// Whom something is to be near to.
struct Where {
    CpuSet cpus;  // that may run it
    int cpu = -1; // that runs it now, which counts first; -1: not known
};

// The calling thread: sched_getcpu(2) and sched_getaffinity(2). Thread-safe.
Where calling_thread() noexcept;

struct DeviceRef {
    std::string_view name; // of an RDMA device ("mlx5_0"), an interface ("eth0"), or a PCI function ("0000:3b:00.0")
    int node = kNoNode;    // as sysfs says; used where the topology doesn't know the name
};

// A value: copies are independent, const members are thread-safe. One made by default has no nodes, and knows nothing.
class Topology
{
public:
    // Nothing, and one line in the log, without libhwloc or when hwloc can't read what it is given. The first takes
    // milliseconds; hwloc's own variables (HWLOC_XMLFILE ...) may put another machine in the place of this one.
    static std::optional<Topology> this_machine() noexcept;
    static std::optional<Topology> from_xml(const char *path) noexcept;
    static std::optional<Topology> from_synthetic(const char *description) noexcept; // hwloc's syntax: "node:2 pu:4"

    // How far the device is from these processors, as the mean of what each has to it: 1000 is the same node, 2000 what
    // firmware calls twice as far (hundredths of ACPI SLIT's unit). Nothing where either is not known.
    std::optional<unsigned> distance(std::string_view device, const CpuSet &cpus) const noexcept;
    std::optional<unsigned> distance(int node, const CpuSet &cpus) const noexcept;

    // Places in `devices`, the nearest first; those that are equally near stay in order, unknown ones are last.
    std::vector<std::size_t> rank(std::span<const DeviceRef> devices, const Where &where) const noexcept;

private:
    friend class TopologyReader;
    friend struct TopologyProbe; // of the tests

    struct Node {
        int number;  // Linux's
        CpuSet cpus; // no processor is in two nodes
    };
    struct Device {
        std::string name;
        std::vector<std::size_t> near; // places in nodes_, at least one
    };

    const Device *find(std::string_view name) const noexcept;
    std::optional<unsigned> mean_distance(std::span<const std::size_t> from, const CpuSet &cpus) const noexcept;

    std::vector<Node> nodes_;
    std::vector<unsigned> distances_; // nodes x nodes, ACPI's unit: 10 is local
    std::vector<Device> devices_;
};

// This machine's, read at the first call, which takes milliseconds, tens of them on a large or busy machine. It has no
// nodes, and is had at once, where there is only one (and no variable of hwloc's says otherwise); none either where
// reading failed. Stays for ever. Thread-safe.
const Topology &machine_topology() noexcept;

} // namespace vma::core
