// SPDX-License-Identifier: BSD-2-Clause
#include "ether/xdp_program.hpp"

#include <cerrno>
#include <linux/if_link.h>
#include <memory>

#include "core/log.hpp"
#include "ether/bpf.hpp"
#include "ether/flow_key.hpp"
#include "ether/steering_code.hpp"

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

int XdpProgram::open(const Size &size, bool several_buffers, XdpProgram &opened) noexcept
{
    XdpProgram made;
    made.flows_ = bpf::create_map("vma_flows", BPF_MAP_TYPE_HASH, sizeof(FlowKey), 4, size.flows);
    if (!made.flows_)
        return -errno;
    made.addresses_ = bpf::create_map("vma_addresses", BPF_MAP_TYPE_HASH, sizeof(inet::IpAddress), 4, size.addresses);
    if (!made.addresses_)
        return -errno;
    made.sockets_ = bpf::create_map("vma_sockets", BPF_MAP_TYPE_XSKMAP, 4, 4, size.queues);
    if (!made.sockets_)
        return -errno;
    made.counters_ = bpf::create_map("vma_counters", BPF_MAP_TYPE_PERCPU_ARRAY, 4, kCountersSize, 1);
    if (!made.counters_)
        return -errno;
    Assembler code;
    assemble_steering(code, {made.flows_.get(), made.addresses_.get(), made.sockets_.get(), made.counters_.get()});
    const std::span<const bpf_insn> instructions = code.finish();
    if (several_buffers)
        made.program_ = bpf::load_xdp("vma_steering", instructions, BPF_F_XDP_HAS_FRAGS);
    made.several_buffers_ = static_cast<bool>(made.program_);
    if (!made.program_)
        made.program_ = bpf::load_xdp("vma_steering", instructions, 0);
    if (!made.program_)
        return -errno;
    opened = std::move(made);
    return 0;
}

int XdpProgram::set_socket(unsigned queue, int socket) noexcept
{
    return bpf::table().update(sockets_.get(), &queue, &socket, BPF_ANY);
}

int XdpProgram::attach(unsigned interface, XdpMode mode) noexcept
{
    int status = -EOPNOTSUPP;
    if (mode != XdpMode::kGeneric) {
        link_ = bpf::attach_xdp(program_.get(), interface, XDP_FLAGS_DRV_MODE);
        mode_ = XdpMode::kNative;
        status = link_ ? 0 : -errno;
    }
    // A driver without XDP, or with an MTU that its XDP can't take.
    if (mode == XdpMode::kGeneric || (mode == XdpMode::kAuto && (status == -EOPNOTSUPP || status == -ERANGE))) {
        link_ = bpf::attach_xdp(program_.get(), interface, XDP_FLAGS_SKB_MODE);
        mode_ = XdpMode::kGeneric;
        status = link_ ? 0 : -errno;
    }
    if (status != 0)
        mode_ = XdpMode::kAuto;
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
