// SPDX-License-Identifier: BSD-2-Clause
#include "ether/xdp/flows.hpp"

#include <cerrno>

#include "ether/xdp/bpf.hpp"

namespace vma::ether {
namespace {

static_assert(kFlowTableFull == -ENOSPC);

int put(int map, const void *key, std::uint32_t value, std::uint64_t flags)
{
    const int status = bpf::table().update(map, key, &value, flags);
    return status == -E2BIG ? kFlowTableFull : status;
}

// visit(key, value) for each entry; it may erase that one.
template <typename Key, typename Visit> void for_each(int map, Visit visit)
{
    Key key;
    Key next;
    bool more = bpf::table().next_key(map, nullptr, &next) == 0;
    while (more) {
        key = next;
        more = bpf::table().next_key(map, &key, &next) == 0;
        std::uint32_t value = 0;
        if (bpf::table().look_up(map, &key, &value) == 0)
            visit(key, value);
    }
}

} // namespace

int XdpFlows::add(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans) noexcept
{
    if (!is_valid(flow, protocol))
        return -EINVAL;
    const FlowKey key = make_flow_key(flow, protocol, vlans);
    if (const int status = put(flows_, &key, place_, BPF_NOEXIST); status != 0)
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
        const int status = put(flows_, &key, place_, BPF_NOEXIST);
        if (status != 0)
            fragments_.erase(key);
        if (status == -EEXIST)
            return 0; // another process has them
        if (status != 0)
            return status;
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

int XdpFlows::change_address(int map, const void *address, std::uint32_t add, std::uint32_t remove) noexcept
{
    std::uint32_t named = 0;
    (void)bpf::table().look_up(map, address, &named);
    const std::uint32_t now = (named | add) & ~remove;
    return now != 0 ? put(map, address, now, BPF_ANY) : bpf::table().erase(map, address);
}

int XdpFlows::add_address(const inet::IpAddress &address) noexcept
{
    const GroupTurn turn(turn_);
    return change_address(addresses_, address.bytes.data(), 1U << place_, 0);
}

int XdpFlows::remove_address(const inet::IpAddress &address) noexcept
{
    const GroupTurn turn(turn_);
    return change_address(addresses_, address.bytes.data(), 0, 1U << place_);
}

void XdpFlows::forget(int flows_map, int addresses_map, unsigned place) noexcept
{
    for_each<FlowKey>(flows_map, [=](const FlowKey &key, std::uint32_t whose) {
        if (whose == place)
            (void)bpf::table().erase(flows_map, &key);
    });
    for_each<inet::IpAddress>(addresses_map, [=](const inet::IpAddress &address, std::uint32_t named) {
        if ((named >> place & 1) != 0)
            (void)change_address(addresses_map, address.bytes.data(), 0, 1U << place);
    });
}

} // namespace vma::ether
