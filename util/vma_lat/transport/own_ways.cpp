// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/transport/own_ways.hpp"

#include "compat/src/stats/layout.hpp"
#include "compat/src/stats/text.hpp"
#include "util/vma_lat/address.hpp"

#include <mellanox/vma_extra.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>

namespace vma::lat {

namespace {

using stats::Facts;
using stats::Header;
using stats::Slot;

// The library has it mapped, wherever VMA_STATS_SHMEM_DIR or a file of settings put it.
std::string own_file()
{
    const std::string name = "/vmastat." + std::to_string(getpid());
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (const std::size_t path = line.find('/'); path != std::string::npos && line.ends_with(name))
            return line.substr(path);
    return {};
}

std::vector<Way> all_alike(std::size_t sockets, Carrier carrier, const char *reason)
{
    Way way;
    way.carrier = carrier;
    way.sockets = static_cast<std::uint32_t>(sockets);
    way.reason = reason;
    return std::vector<Way>(sockets != 0 ? 1 : 0, way);
}

template <std::size_t kSize> std::string text_in(const char (&text)[kSize])
{
    return {text, strnlen(text, kSize)};
}

Carrier carrier_of(stats::Way way)
{
    switch (way) {
    case stats::Way::kKernel:
    case stats::Way::kPinned:
        return Carrier::kKernel;
    case stats::Way::kLocal:
        return Carrier::kLocal;
    case stats::Way::kRdma:
        return Carrier::kRdma;
    case stats::Way::kPort:
        return Carrier::kPort;
    }
    return Carrier::kUnknown;
}

Way way_of(Slot slot, std::uint32_t lift_after)
{
    const Facts &f = slot.facts;
    Way way;
    way.carrier = carrier_of(f.way);
    way.guessed = f.reason[0] == '\0';
    stats::explain_kernel(slot, lift_after);
    if (stats::is_offloaded(f)) {
        way.device = text_in(f.device);
        way.introduced = (f.flags & stats::kByVmad) != 0;
    } else {
        way.reason = text_in(f.reason);
    }
    way.other_user = (f.flags & stats::kOtherUser) != 0;
    way.user = way.other_user ? f.peer_user : 0;
    way.kernel_bytes = slot.now.rx.os_bytes + slot.now.tx.os_bytes;
    way.bytes = way.kernel_bytes + slot.now.rx.bytes + slot.now.tx.bytes;
    return way;
}

// All that is in the file, or nullptr: not one of this version.
std::unique_ptr<Header> read_file(const std::string &path, std::vector<Slot> &slots)
{
    const Fd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    auto header = std::make_unique<Header>();
    const auto read = [&file](void *out, std::size_t size, std::size_t at) {
        return pread(file.get(), out, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size);
    };
    if (!file || !read(header.get(), sizeof(Header), 0) || header->magic != stats::kMagic ||
        header->version != stats::kVersion || header->header_size != sizeof(Header) ||
        header->slot_size != sizeof(Slot) || header->slot_count > stats::kMostSlots)
        return nullptr;
    slots.resize(std::min(header->slots_used, header->slot_count));
    return slots.empty() || read(slots.data(), slots.size() * sizeof(Slot), sizeof(Header)) ? std::move(header)
                                                                                            : nullptr;
}

std::uint64_t own_network()
{
    struct stat space = {};
    return stat("/proc/self/ns/net", &space) == 0 ? space.st_ino : 0;
}

} // namespace

std::vector<Way> read_ways(const std::string &path, const std::vector<int> &sockets)
{
    if (path.empty())
        return all_alike(sockets.size(), Carrier::kUnknown, "libvma.so writes no statistics (VMA_STATS_SHMEM_DIR)");
    std::vector<Slot> slots;
    const auto header = read_file(path, slots);
    if (header == nullptr)
        return all_alike(sockets.size(), Carrier::kUnknown, "the statistics are not those of vma_lat's version");
    std::vector<Way> ways;
    for (const int fd : sockets) {
        const auto slot = std::find_if(slots.begin(), slots.end(), [fd](const Slot &s) { return s.facts.fd == fd; });
        if (slot != slots.end())
            ways.push_back(way_of(*slot, header->lift_after));
        else
            ways.push_back(all_alike(1, Carrier::kUnknown, "the statistics have no record of it")[0]);
    }
    return merged(ways);
}

Side look_at(const std::vector<int> &sockets)
{
    Side side;
    side.library = vma_get_api() != nullptr;
    side.user = geteuid();
    side.network = own_network();
    side.ways = side.library ? read_ways(own_file(), sockets)
                             : all_alike(sockets.size(), Carrier::kKernel, "libvma.so is not loaded");
    return side;
}

} // namespace vma::lat
