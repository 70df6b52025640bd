// SPDX-License-Identifier: BSD-2-Clause
#include "ether/xdp/flows.hpp"

#include <cerrno>

#include "ether/xdp/bpf.hpp"

namespace vma::ether {
namespace {

static_assert(kFlowTableFull == -ENOSPC);

constexpr std::uint32_t kPresent = 1; // maps have values; these two don't need any

int put(int map, const void *key, std::uint64_t flags)
{
    const int status = bpf::table().update(map, key, &kPresent, flags);
    return status == -E2BIG ? kFlowTableFull : status;
}

} // namespace

int XdpFlows::add(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans) noexcept
{
    if (!is_valid(flow, protocol))
        return -EINVAL;
    const FlowKey key = make_flow_key(flow, protocol, vlans);
    if (const int status = put(flows_, &key, BPF_NOEXIST); status != 0)
        return status;
    if (protocol == inet::Protocol::kTcp) {
        if (const int status = add_fragments(make_fragment_key(key)); status != 0) {
            (void)bpf::table().erase(flows_, &key);
            return status;
        }
    }
    ++count_;
    return 0;
}

int XdpFlows::remove(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans) noexcept
{
    if (!is_valid(flow, protocol))
        return -EINVAL;
    const FlowKey key = make_flow_key(flow, protocol, vlans);
    if (const int status = bpf::table().erase(flows_, &key); status != 0)
        return status;
    if (protocol == inet::Protocol::kTcp)
        remove_fragments(make_fragment_key(key));
    --count_;
    return 0;
}

int XdpFlows::add_fragments(const FlowKey &key) noexcept
{
    std::uint32_t &users = fragments_[key];
    if (users == 0) {
        if (const int status = put(flows_, &key, BPF_ANY); status != 0) {
            fragments_.erase(key);
            return status;
        }
    }
    ++users;
    return 0;
}

void XdpFlows::remove_fragments(const FlowKey &key) noexcept
{
    const auto found = fragments_.find(key);
    if (found == fragments_.end() || --found->second != 0)
        return;
    (void)bpf::table().erase(flows_, &key);
    fragments_.erase(found);
}

int XdpFlows::add_address(const inet::IpAddress &address) noexcept
{
    return put(addresses_, address.bytes.data(), BPF_ANY);
}

int XdpFlows::remove_address(const inet::IpAddress &address) noexcept
{
    return bpf::table().erase(addresses_, address.bytes.data());
}

} // namespace vma::ether
