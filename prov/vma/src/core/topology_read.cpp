// SPDX-License-Identifier: BSD-2-Clause
// Reads a topology through hwloc: this machine's, one that was recorded as XML, or a synthetic one. What a file says
// is not trusted: node numbers and distances are checked against what the rest relies on.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "core/hwloc_table.hpp"
#include "core/log.hpp"
#include "core/topology.hpp"

namespace vma::core {

namespace {

constexpr unsigned kLocal = 10; // ACPI's unit
constexpr unsigned kSamePackage = 12;
constexpr unsigned kRemote = 20; // what Linux assumes where firmware says nothing
constexpr hwloc_uint64_t kMostDistance = 65535;

// They ask drivers of graphics cards, or bind the calling thread to one processor after the other.
constexpr const char *kUnwanted[] = {"x86", "opencl", "cuda", "nvml", "rsmi", "levelzero", "gl"};

CpuSet cpus_of_object(const HwlocTable &hwloc, const hwloc_obj *object)
{
    CpuSet set;
    for (int cpu = hwloc.bitmap_next(object->cpuset, -1); cpu >= 0 && static_cast<std::size_t>(cpu) < kMaxCpus;
         cpu = hwloc.bitmap_next(object->cpuset, cpu))
        set.set(static_cast<std::size_t>(cpu));
    return set;
}

const hwloc_obj *package_of(const hwloc_obj *object)
{
    while (object != nullptr && object->type != HWLOC_OBJ_PACKAGE)
        object = object->parent;
    return object;
}

} // namespace

class TopologyReader
{
public:
    explicit TopologyReader(const HwlocTable &hwloc) noexcept : hwloc_(hwloc) {}
    ~TopologyReader()
    {
        if (topology_ != nullptr)
            hwloc_.destroy(topology_);
    }
    TopologyReader(const TopologyReader &) = delete;
    TopologyReader &operator=(const TopologyReader &) = delete;

    // Source: a member of HwlocTable that names where from, and its argument; or nothing.
    using Source = int (*)(hwloc_topology_t, const char *);

    bool load(Source source, const char *argument)
    {
        if (hwloc_.init(&topology_) != 0) {
            topology_ = nullptr;
            return false;
        }
        if (hwloc_.abi_check(topology_) != 0)
            return false;
        for (const char *name : kUnwanted)
            hwloc_.set_components(topology_, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, name);
        // A container that may use one node only has its devices on others nevertheless.
        hwloc_.set_flags(topology_, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
        // Each kind of object is some more files of sysfs for each processor; nodes and processors are read always.
        hwloc_.set_all_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_NONE);
        hwloc_.set_type_filter(topology_, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
        hwloc_.set_type_filter(topology_, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
        hwloc_.set_type_filter(topology_, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
        hwloc_.set_type_filter(topology_, HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
        return (source == nullptr || source(topology_, argument) == 0) && hwloc_.load(topology_) == 0;
    }

    Topology result()
    {
        read_nodes();
        read_distances();
        read_devices(HWLOC_TYPE_DEPTH_PCI_DEVICE);
        read_devices(HWLOC_TYPE_DEPTH_OS_DEVICE);
        return std::move(found_);
    }

private:
    const hwloc_obj *object(int depth, std::size_t index) const
    {
        return hwloc_.get_obj_by_depth(topology_, depth, static_cast<unsigned>(index));
    }

    // A node that no processor is in (memory of a card, slow memory) has in hwloc those of all that are near it, so the
    // smaller ones come first, and what overlaps them is nowhere that a thread could be. So is a second kind of memory
    // of the same processors.
    void read_nodes()
    {
        std::vector<std::pair<const hwloc_obj *, CpuSet>> nodes;
        for (std::size_t i = 0; const hwloc_obj *node = object(HWLOC_TYPE_DEPTH_NUMANODE, i); ++i) {
            if (node->cpuset != nullptr && node->os_index < static_cast<unsigned>(kMaxNodes))
                nodes.emplace_back(node, cpus_of_object(hwloc_, node));
        }
        std::ranges::stable_sort(nodes, {}, [](const auto &node) { return node.second.count(); });
        CpuSet taken;
        for (const auto &[node, cpus] : nodes) {
            if (cpus.none() || (taken & cpus).any())
                continue;
            taken |= cpus;
            found_.nodes_.push_back({static_cast<int>(node->os_index), cpus});
            objects_.push_back(node);
        }
    }

    // First by the tree; what the firmware says is put over it.
    void read_distances()
    {
        const std::size_t n = objects_.size();
        found_.distances_.assign(n * n, kRemote);
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j < n; ++j) {
                const hwloc_obj *package = package_of(objects_[i]);
                if (i == j)
                    found_.distances_[i * n + j] = kLocal;
                else if (package != nullptr && package == package_of(objects_[j]))
                    found_.distances_[i * n + j] = kSamePackage;
            }
        }
        hwloc_distances_s *matrix = nullptr;
        unsigned count = 1;
        if (hwloc_.distances_get_by_type(topology_, HWLOC_OBJ_NUMANODE, &count, &matrix,
                                         HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) != 0 ||
            count == 0 || matrix == nullptr)
            return;
        take_distances(*matrix);
        hwloc_.distances_release(topology_, matrix);
    }

    void take_distances(const hwloc_distances_s &matrix)
    {
        const std::size_t n = objects_.size();
        const auto place = [&](const hwloc_obj *node) {
            return static_cast<std::size_t>(std::ranges::find(objects_, node) - objects_.begin());
        };
        for (std::size_t i = 0; i < matrix.nbobjs; ++i) {
            for (std::size_t j = 0; j < matrix.nbobjs; ++j) {
                const std::size_t from = place(matrix.objs[i]);
                const std::size_t to = place(matrix.objs[j]);
                if (from < n && to < n)
                    found_.distances_[from * n + to] =
                        static_cast<unsigned>(std::min(matrix.values[i * matrix.nbobjs + j], kMostDistance));
            }
        }
    }

    void read_devices(int depth)
    {
        for (std::size_t i = 0; const hwloc_obj *device = object(depth, i); ++i) {
            const hwloc_obj *place = device;
            while (place != nullptr && place->cpuset == nullptr)
                place = place->parent; // devices hang under the part of the machine that they are near to
            if (place != nullptr)
                add_device(name_of(*device), cpus_of_object(hwloc_, place));
        }
    }

    static std::string name_of(const hwloc_obj &device)
    {
        if (device.type != HWLOC_OBJ_PCI_DEVICE)
            return device.name != nullptr ? device.name : "";
        char text[32];
        const auto &pci = device.attr->pcidev;
        std::snprintf(text, sizeof(text), "%04x:%02x:%02x.%x", unsigned{pci.domain}, unsigned{pci.bus},
                      unsigned{pci.dev}, unsigned{pci.func});
        return text;
    }

    // What hangs under the whole of a machine of several nodes is on none: hwloc doesn't know.
    void add_device(std::string name, const CpuSet &cpus)
    {
        std::vector<std::size_t> near;
        for (std::size_t i = 0; i < found_.nodes_.size(); ++i) {
            if ((found_.nodes_[i].cpus & cpus).any())
                near.push_back(i);
        }
        const bool everywhere = near.size() == found_.nodes_.size() && near.size() > 1;
        if (!name.empty() && !near.empty() && !everywhere)
            found_.devices_.push_back({std::move(name), std::move(near)});
    }

    const HwlocTable &hwloc_;
    hwloc_topology_t topology_ = nullptr;
    std::vector<const hwloc_obj *> objects_; // of found_.nodes_
    Topology found_;
};

namespace {

std::optional<Topology> read(const char *what, TopologyReader::Source HwlocTable::*source, const char *argument)
{
    const std::optional<HwlocTable> hwloc = open_hwloc();
    if (!hwloc)
        return std::nullopt;
    TopologyReader reader(*hwloc);
    errno = 0;
    if (reader.load(source != nullptr ? (*hwloc).*source : nullptr, argument))
        return reader.result();
    VMA_WARN(fabric, "hwloc can't read %s%s%s: %s; all devices count as equally near", what,
             argument != nullptr ? " " : "", argument != nullptr ? argument : "",
             errno != 0 ? std::strerror(errno) : "it is not one");
    return std::nullopt;
}

} // namespace

std::optional<Topology> Topology::this_machine() noexcept
{
    return read("the topology of this machine", nullptr, nullptr);
}

std::optional<Topology> Topology::from_xml(const char *path) noexcept
{
    return read("the recorded topology", &HwlocTable::set_xml, path);
}

std::optional<Topology> Topology::from_synthetic(const char *description) noexcept
{
    return read("the synthetic topology", &HwlocTable::set_synthetic, description);
}

} // namespace vma::core
