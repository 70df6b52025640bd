// SPDX-License-Identifier: BSD-2-Clause
#include "ether/raw/flows.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/log.hpp"
#include "ether/nic/group_mac.hpp"
#include "inet/wire/ethernet.hpp"
#include "inet/wire/frame.hpp"

namespace vma::ether {
namespace {

static_assert(kFlowRefused == -EOPNOTSUPP);

// Priorities of rules: the lower number first. Narrow flows go before wide ones, other processes' too.
constexpr unsigned kFiveValues = 0;
constexpr unsigned kThreeValues = 1;
constexpr unsigned kAnyAddress = 2;

constexpr std::uint16_t kEveryBit = 0xffff;

// As the kernel reads it: the specifications stand behind the attributes without a gap.
template <typename Ip> struct Wire {
    ibv_flow_attr attr;
    ibv_flow_spec_eth eth;
    Ip ip;
    ibv_flow_spec_tcp_udp ports;
};
static_assert(sizeof(Wire<ibv_flow_spec_ipv4>) == sizeof(ibv_flow_attr) + sizeof(ibv_flow_spec_eth) +
                                                      sizeof(ibv_flow_spec_ipv4) + sizeof(ibv_flow_spec_tcp_udp));
static_assert(sizeof(Wire<ibv_flow_spec_ipv6>) == sizeof(ibv_flow_attr) + sizeof(ibv_flow_spec_eth) +
                                                      sizeof(ibv_flow_spec_ipv6) + sizeof(ibv_flow_spec_tcp_udp));

bool is_zero(std::span<const std::uint8_t> bytes)
{
    return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; });
}

inet::IpAddress local_of(const FlowKey &key)
{
    return inet::IpAddress::v6(key.local);
}

bool has_remote(const FlowKey &key)
{
    return !is_zero(key.remote_port);
}

void match(ibv_flow_spec_ipv4 &ip, const FlowKey &key, const inet::IpAddress &local)
{
    ip.type = IBV_FLOW_SPEC_IPV4;
    memcpy(&ip.val.dst_ip, local.v4_bytes(), sizeof ip.val.dst_ip);
    ip.mask.dst_ip = ~std::uint32_t{0};
    if (has_remote(key)) {
        memcpy(&ip.val.src_ip, key.remote + 12, sizeof ip.val.src_ip);
        ip.mask.src_ip = ~std::uint32_t{0};
    }
}

void match(ibv_flow_spec_ipv6 &ip, const FlowKey &key, const inet::IpAddress &local)
{
    ip.type = IBV_FLOW_SPEC_IPV6;
    memcpy(ip.val.dst_ip, local.bytes.data(), sizeof ip.val.dst_ip);
    memset(ip.mask.dst_ip, 0xff, sizeof ip.mask.dst_ip);
    if (has_remote(key)) {
        memcpy(ip.val.src_ip, key.remote, sizeof ip.val.src_ip);
        memset(ip.mask.src_ip, 0xff, sizeof ip.mask.src_ip);
    }
}

void match(ibv_flow_spec_tcp_udp &ports, const FlowKey &key)
{
    const bool tcp = key.protocol == static_cast<std::uint32_t>(inet::Protocol::kTcp);
    ports.type = tcp ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP;
    ports.size = sizeof ports;
    memcpy(&ports.val.dst_port, key.local_port, sizeof ports.val.dst_port);
    ports.mask.dst_port = kEveryBit;
    if (has_remote(key)) {
        memcpy(&ports.val.src_port, key.remote_port, sizeof ports.val.src_port);
        ports.mask.src_port = kEveryBit;
    }
}

void match(ibv_flow_spec_eth &eth, const inet::Mac &mac, std::uint16_t vlan)
{
    eth.type = IBV_FLOW_SPEC_ETH;
    eth.size = sizeof eth;
    memcpy(eth.val.dst_mac, mac.bytes.data(), sizeof eth.val.dst_mac);
    memset(eth.mask.dst_mac, 0xff, sizeof eth.mask.dst_mac);
    if (vlan != 0) {
        eth.val.vlan_tag = htons(vlan);
        eth.mask.vlan_tag = htons(inet::kVlanIdMask);
    }
}

template <typename Ip>
ibv_flow *create(ibv_qp *qp, std::uint8_t port, const inet::Mac &mac, const FlowKey &key, const inet::IpAddress &local,
                 unsigned priority)
{
    Wire<Ip> rule{};
    rule.attr.type = IBV_FLOW_ATTR_NORMAL;
    rule.attr.size = sizeof rule;
    rule.attr.priority = static_cast<std::uint16_t>(priority);
    rule.attr.num_of_specs = 3;
    rule.attr.port = port;
    match(rule.eth, local.is_multicast() ? group_mac(local) : mac, key.outer_vlan);
    match(rule.ip, key, local);
    rule.ip.size = sizeof rule.ip;
    match(rule.ports, key);
    errno = 0;
    return ::ibv_create_flow(qp, &rule.attr);
}

int destroy(ibv_flow *flow)
{
    return ::ibv_destroy_flow(flow);
}

// What a device says to a rule, as Flows::add() does.
int refusal(int error)
{
    if (error == ENOMEM || error == ENOSPC)
        return kFlowTableFull;
    return error == EIO || error == ENODEV ? -ENODEV : kFlowRefused;
}

} // namespace

int RawFlows::add_rule(const FlowKey &key, const inet::IpAddress &local, unsigned priority, Rules &rules) noexcept
{
    if (given_up_)
        return -ENODEV;
    const auto make = local.is_v4() ? create<ibv_flow_spec_ipv4> : create<ibv_flow_spec_ipv6>;
    VerbsObject<ibv_flow> made = own(make(qp_, port_, mac_, key, local, priority), destroy);
    if (!made) {
        const int error = errno;
        VMA_INFO(domain, "the NIC refuses a flow rule (%s): its frames stay the kernel's", std::strerror(error));
        return refusal(error);
    }
    rules.push_back({local, std::move(made)});
    return 0;
}

int RawFlows::add(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans) noexcept
{
    if (!is_valid(flow, protocol))
        return -EINVAL;
    if (vlans.inner != 0) // verbs' rules know one tag
        return kFlowRefused;
    const FlowKey key = make_flow_key(flow, protocol, vlans);
    if (flows_.contains(key))
        return -EEXIST;
    if (given_up_)
        return -ENODEV;
    Rules rules;
    if (!flow.local.address.is_any()) {
        const unsigned priority = flow.remote.port != 0 ? kFiveValues : kThreeValues;
        if (const int status = add_rule(key, flow.local.address, priority, rules); status != 0)
            return status;
    } else {
        for (const inet::IpAddress &address : addresses_) {
            if (address.is_v4() != flow.local.address.is_v4())
                continue;
            if (const int status = add_rule(key, address, kAnyAddress, rules); status != 0)
                return status;
        }
    }
    flows_.emplace(key, std::move(rules));
    return 0;
}

int RawFlows::remove(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans) noexcept
{
    if (!is_valid(flow, protocol))
        return -EINVAL;
    return flows_.erase(make_flow_key(flow, protocol, vlans)) != 0 ? 0 : -ENOENT;
}

int RawFlows::add_address(const inet::IpAddress &address) noexcept
{
    if (std::ranges::find(addresses_, address) != addresses_.end())
        return 0;
    addresses_.push_back(address);
    for (auto &[key, rules] : flows_) {
        const inet::IpAddress local = local_of(key);
        if (!local.is_any() || local.is_v4() != address.is_v4())
            continue;
        if (const int status = add_rule(key, address, kAnyAddress, rules); status != 0) {
            static_cast<void>(remove_address(address));
            return status;
        }
    }
    return 0;
}

int RawFlows::remove_address(const inet::IpAddress &address) noexcept
{
    if (std::erase(addresses_, address) == 0)
        return -ENOENT;
    for (auto &[key, rules] : flows_) {
        if (local_of(key).is_any())
            std::erase_if(rules, [&](const Rule &rule) { return rule.local == address; });
    }
    return 0;
}

int RawFlows::try_rule() noexcept
{
    const inet::IpAddress loopback = inet::IpAddress::v4(0x7f000001);
    const FlowKey key = make_flow_key({{loopback, 9}, {loopback, 9}}, inet::Protocol::kUdp, {});
    Rules rules;
    return add_rule(key, loopback, kFiveValues, rules);
}

void RawFlows::give_up() noexcept
{
    if (std::exchange(given_up_, true))
        return;
    for (auto &[key, rules] : flows_)
        rules.clear();
}

bool RawFlows::has(FlowKey key) const noexcept
{
    if (flows_.contains(key))
        return true;
    memset(key.remote, 0, sizeof key.remote);
    memset(key.remote_port, 0, sizeof key.remote_port);
    if (flows_.contains(key))
        return true;
    const inet::IpAddress any = local_of(key).is_v4() ? inet::IpAddress::v4(std::uint32_t{0}) : inet::IpAddress{};
    memcpy(key.local, any.bytes.data(), sizeof key.local);
    return flows_.contains(key);
}

bool RawFlows::owns_tagged(std::span<const std::uint8_t> frame) const noexcept
{
    inet::Packet packet;
    inet::FragmentInfo fragment;
    inet::FrameInfo trusted;
    trusted.checksums_good = true; // the stack looks at them later
    if (inet::parse_frame(frame, trusted, packet, fragment) != inet::Parsed::kPacket || packet.payload.size() < 4)
        return false;
    const inet::Endpoint remote = {packet.source, inet::load16(packet.payload.data())};
    const inet::Endpoint local = {packet.target, inet::load16(packet.payload.data() + 2)};
    return has(make_flow_key({local, remote}, packet.protocol, {packet.vlan, 0}));
}

} // namespace vma::ether
