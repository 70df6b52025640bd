// SPDX-License-Identifier: BSD-2-Clause
#include "ether/nic.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "core/log.hpp"
#include "core/parse_number.hpp"
#include "ofi/libfabric.hpp"
#include "ofi/process_ops.hpp"

namespace vma::ether {
namespace {

constexpr unsigned kUsualMtu = 1500;
constexpr std::uint32_t kLongFrame = 4096; // bytes, of AF_XDP, for a longer one

template <typename Value> struct Word {
    std::string_view name;
    Value value;
};
constexpr Word<NicKind> kKinds[] = {{"auto", NicKind::kAuto}, {"xdp", NicKind::kXdp}, {"raw", NicKind::kRaw}};
constexpr Word<XdpStamps> kStamps[] = {
    {"off", XdpStamps::kNone}, {"software", XdpStamps::kSoftware}, {"hardware", XdpStamps::kHardware}};
constexpr Word<XdpMode> kModes[] = {
    {"auto", XdpMode::kAuto}, {"native", XdpMode::kNative}, {"generic", XdpMode::kGeneric}};
constexpr Word<bool> kSwitch[] = {{"on", true}, {"off", false}, {"1", true}, {"0", false}};

// What the parameter's word means. One that means nothing is warned of once, with `complaint`, and is the usual value.
template <typename Value, std::size_t N>
Value configured(ofi::Param param, const Word<Value> (&words)[N], const char *complaint, Value usual) noexcept
{
    // The process's, one for each kind of value, without a lock: exchange() lets one thread warn.
    static constinit std::atomic<bool> warned{false};
    const char *const text = ofi::param(param);
    if (text == nullptr)
        return usual;
    const auto *const found = std::ranges::find(words, std::string_view(text), &Word<Value>::name);
    if (found != std::end(words))
        return found->value;
    if (!warned.exchange(true, std::memory_order_relaxed))
        VMA_WARN(domain, complaint, text);
    return usual;
}

int open_raw(const char *name, const Interface &interface, const NicOptions &options, RawNic &opened) noexcept
{
    const bool must = options.kind == NicKind::kRaw;
    const std::optional<core::RdmaPort> device = core::rdma_port_of(name, options.sysfs);
    if (!device) {
        if (must)
            VMA_WARN(domain, "%s stays the kernel's: it is no RDMA device's, and raw packets are asked for", name);
        return -EOPNOTSUPP;
    }
    RawQueueOptions queue;
    queue.offloads = options.offloads;
    queue.stamps = options.stamps == XdpStamps::kHardware;
    const int status = RawNic::open(interface, *device, opened, queue);
    const char *const error = std::strerror(-status);
    if (status == 0)
        VMA_INFO(domain, "%s: raw packets of RDMA device %s, port %u%s%s", name, device->device.c_str(),
                 unsigned{device->port}, opened.offloads().checksums_v4 ? ", which computes checksums" : "",
                 opened.offloads().segment_limit != 0 ? " and cuts TCP segments" : "");
    else if (must)
        VMA_WARN(domain, "%s stays the kernel's: no raw packets of RDMA device %s: %s", name, device->device.c_str(),
                 error);
    else
        VMA_INFO(domain, "%s: no raw packets of RDMA device %s (%s), so AF_XDP", name, device->device.c_str(), error);
    return status;
}

} // namespace

NicKind configured_nic_kind() noexcept
{
    return configured(ofi::Param::ethernet, kKinds,
                      "FI_VMA_ETHERNET: \"%s\" is none of auto, xdp and raw: xdp is taken",
                      NicKind::kXdp); // no NIC has run the other kind yet
}

XdpStamps configured_stamps() noexcept
{
    return configured(ofi::Param::ethernet_stamps, kStamps,
                      "FI_VMA_ETHERNET_STAMPS: \"%s\" is none of off, software and hardware: off is taken",
                      XdpStamps::kNone);
}

XdpMode configured_xdp_mode() noexcept
{
    return configured(ofi::Param::ethernet_xdp, kModes,
                      "FI_VMA_ETHERNET_XDP: \"%s\" is none of auto, native and generic: auto is taken", XdpMode::kAuto);
}

unsigned configured_processes() noexcept
{
    constexpr std::uint32_t kUsual = 8;
    // The process's, without a lock: exchange() lets one thread warn.
    static constinit std::atomic<bool> warned{false};
    if (ofi::frame_allocator().allocate != nullptr)
        return 1; // nobody else has the program's memory
    const char *const text = ofi::param(ofi::Param::ethernet_processes);
    std::uint32_t value = kUsual;
    if (text == nullptr || (core::parse_number(text, kMostPlaces, value) && value != 0))
        return value;
    if (!warned.exchange(true, std::memory_order_relaxed))
        VMA_WARN(domain, "FI_VMA_ETHERNET_PROCESSES is \"%s\", expected a number from 1 to %u: %u is taken", text,
                 kMostPlaces, kUsual);
    return kUsual;
}

bool configured_offloads() noexcept
{
    return configured(ofi::Param::ethernet_offloads, kSwitch,
                      "FI_VMA_ETHERNET_OFFLOADS: \"%s\" is none of on and off: on is taken", true);
}

int Nic::open(const char *interface, const NicOptions &options, Nic &opened) noexcept
{
    Interface described;
    if (const int status = describe(interface, described); status != 0) {
        VMA_WARN(domain, "%s can't be a port: %s", interface, std::strerror(-status));
        return status;
    }
    if (options.kind != NicKind::kXdp) {
        RawNic raw;
        const int status = open_raw(interface, described, options, raw);
        if (status == 0)
            opened.kind_ = std::move(raw);
        if (status == 0 || options.kind == NicKind::kRaw)
            return status;
    }
    XdpNicOptions xdp;
    xdp.stamps = options.stamps;
    xdp.mode = options.xdp_mode;
    xdp.sockets.offloads = options.offloads;
    xdp.sockets.places = options.processes;
    if (described.mtu > kUsualMtu)
        xdp.sockets.frame_size = kLongFrame;
    return XdpNic::open(interface, xdp, opened.kind_.emplace<XdpNic>());
}

} // namespace vma::ether
