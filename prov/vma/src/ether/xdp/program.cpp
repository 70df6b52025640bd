// SPDX-License-Identifier: BSD-2-Clause
#include "ether/xdp/program.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <linux/if_link.h>
#include <memory>
#include <new>
#include <utility>

#include "core/log.hpp"
#include "ether/nic/flow_key.hpp"
#include "ether/xdp/bpf.hpp"
#include "ether/xdp/steering_code.hpp"

#ifndef BPF_F_XDP_DEV_BOUND_ONLY // Linux 6.3
#define BPF_F_XDP_DEV_BOUND_ONLY (1U << 6)
#endif

namespace vma::ether {
namespace {

// The kernel writes a value for each processor that it may ever have, and no Linux can be built for more of them.
constexpr std::size_t kMaxProcessors = 8192;

struct CounterValue {
    std::uint64_t hits;
    std::uint64_t passes;
    std::uint64_t errors;
};
static_assert(sizeof(CounterValue) == kCountersSize);

} // namespace

int XdpProgram::make_maps(const Size &size) noexcept
{
    flows_ = bpf::create_map("vma_flows", BPF_MAP_TYPE_HASH, sizeof(FlowKey), 4, size.flows);
    if (!flows_)
        return -errno;
    addresses_ = bpf::create_map("vma_addresses", BPF_MAP_TYPE_HASH, sizeof(inet::IpAddress), 4, size.addresses);
    if (!addresses_)
        return -errno;
    facts_.queue_bits = static_cast<std::uint32_t>(std::bit_width(std::max(size.queues, 1U) - 1));
    sockets_ = bpf::create_map("vma_sockets", BPF_MAP_TYPE_XSKMAP, 4, 4, size.places << facts_.queue_bits);
    if (!sockets_)
        return -errno;
    counters_ = bpf::create_map("vma_counters", BPF_MAP_TYPE_PERCPU_ARRAY, 4, kCountersSize, 1);
    return counters_ ? 0 : -errno;
}

bool XdpProgram::load(const Wish &wish, XdpStamps stamps, bool several_buffers) noexcept
{
    bpf::XdpLoad how;
    how.flags = several_buffers ? BPF_F_XDP_HAS_FRAGS : 0;
    SteeringStamps written;
    written.wanted = stamps != XdpStamps::kNone;
    if (stamps == XdpStamps::kHardware) {
        written.hardware_function = bpf::kernel_function("bpf_xdp_metadata_rx_timestamp");
        if (written.hardware_function <= 0)
            return false;
        how.flags |= BPF_F_XDP_DEV_BOUND_ONLY;
        how.interface = wish.interface;
        how.calls_the_kernel = true;
    }
    const std::unique_ptr<Assembler> code(new (std::nothrow) Assembler); // 12 KiB: not on the program's stack
    if (!code) {
        errno = ENOMEM;
        return false;
    }
    assemble_steering(
        *code, {flows_.get(), addresses_.get(), sockets_.get(), counters_.get(), static_cast<int>(facts_.queue_bits)},
        written);
    program_ = bpf::load_xdp("vma_steering", code->finish(), how);
    facts_.several_buffers = several_buffers;
    facts_.stamps = stamps;
    return static_cast<bool>(program_);
}

// Where not all goes together, frames of several buffers are kept longest: without them a NIC may lose frames.
int XdpProgram::open(const Size &size, const Wish &wish, XdpProgram &opened) noexcept
{
    XdpProgram made;
    if (const int status = made.make_maps(size); status != 0)
        return status;
    int error = 0;
    for (const bool several : {true, false}) {
        for (const XdpStamps stamps : {XdpStamps::kHardware, XdpStamps::kSoftware, XdpStamps::kNone}) {
            if ((several && !wish.several_buffers) || stamps > wish.stamps)
                continue;
            if (made.load(wish, stamps, several)) {
                opened = std::move(made);
                return 0;
            }
            error = errno;
        }
    }
    return error != 0 ? -error : -EIO;
}

XdpProgram XdpProgram::adopt(Descriptors given, const Facts &facts) noexcept
{
    XdpProgram made;
    made.flows_ = std::move(given[0]);
    made.addresses_ = std::move(given[1]);
    made.sockets_ = std::move(given[2]);
    made.counters_ = std::move(given[3]);
    made.link_ = std::move(given[4]);
    made.facts_ = facts;
    return made;
}

std::array<int, XdpProgram::kDescriptors> XdpProgram::descriptors() const noexcept
{
    return {flows_.get(), addresses_.get(), sockets_.get(), counters_.get(), link_.get()};
}

int XdpProgram::set_socket(unsigned queue, int socket, unsigned place) noexcept
{
    if (queue >> facts_.queue_bits != 0)
        return -E2BIG;
    const std::uint32_t index = socket_index(queue, place);
    return bpf::table().update(sockets_.get(), &index, &socket, BPF_ANY);
}

void XdpProgram::remove_socket(unsigned queue, unsigned place) noexcept
{
    const std::uint32_t index = socket_index(queue, place);
    (void)bpf::table().erase(sockets_.get(), &index);
}

int XdpProgram::attach(unsigned interface, XdpMode mode) noexcept
{
    int status = -EOPNOTSUPP;
    if (mode != XdpMode::kGeneric) {
        link_ = bpf::attach_xdp(program_.get(), interface, XDP_FLAGS_DRV_MODE);
        facts_.mode = XdpMode::kNative;
        status = link_ ? 0 : -errno;
    }
    // A driver without XDP, or with an MTU that its XDP can't take.
    if (mode == XdpMode::kGeneric || (mode == XdpMode::kAuto && (status == -EOPNOTSUPP || status == -ERANGE))) {
        link_ = bpf::attach_xdp(program_.get(), interface, XDP_FLAGS_SKB_MODE);
        facts_.mode = XdpMode::kGeneric;
        status = link_ ? 0 : -errno;
    }
    if (status != 0)
        facts_.mode = XdpMode::kAuto;
    return status;
}

int XdpProgram::counters(SteeringCounters &sums) const noexcept
{
    const auto values = std::make_unique<CounterValue[]>(kMaxProcessors);
    const std::uint32_t index = 0;
    if (const int status = bpf::table().look_up(counters_.get(), &index, values.get()); status != 0)
        return status;
    sums = {};
    for (std::size_t i = 0; i < kMaxProcessors; ++i) {
        sums.hits += values[i].hits;
        sums.passes += values[i].passes;
        sums.errors += values[i].errors;
    }
    return 0;
}

} // namespace vma::ether
