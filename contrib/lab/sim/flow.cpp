// SPDX-License-Identifier: BSD-2-Clause
// Flow rules of the simulated NIC: taken, kept, given back, and which frames they mean.
#include "contrib/lab/sim/world.hpp"

#include <algorithm>
#include <netinet/in.h>

#include "contrib/lab/sim/frame.hpp"

namespace vma::sim {
namespace {

constexpr unsigned kLowest = 15; // priority, the largest number

// What all specs begin with.
struct SpecHead {
    ibv_flow_spec_type type;
    std::uint16_t size;
};

// Each spec in turn, whose bytes are there; false: they are not as many, or as long, as the attributes say, or `use`
// said so.
template <typename Use> bool each_spec(const std::byte *bytes, Use use)
{
    ibv_flow_attr attr;
    std::memcpy(&attr, bytes, sizeof attr);
    std::size_t at = sizeof attr;
    for (unsigned i = 0; i < attr.num_of_specs; ++i) {
        SpecHead head;
        if (attr.size < at + sizeof head)
            return false;
        std::memcpy(&head, bytes + at, sizeof head);
        if (head.size < sizeof head || head.size > attr.size - at || !use(head, bytes + at))
            return false;
        at += head.size;
    }
    return at == attr.size;
}

template <typename Spec> Spec read(const std::byte *bytes)
{
    Spec spec;
    std::memcpy(&spec, bytes, sizeof spec);
    return spec;
}

// 2, 3 and 4 for link, network and transport; 0: this device knows no such spec, or not of that length.
int layer_of(const SpecHead &head)
{
    switch (static_cast<unsigned>(head.type)) {
    case IBV_FLOW_SPEC_ETH:
        return head.size == sizeof(ibv_flow_spec_eth) ? 2 : 0;
    case IBV_FLOW_SPEC_IPV4:
        return head.size == sizeof(ibv_flow_spec_ipv4) ? 3 : 0;
    case IBV_FLOW_SPEC_IPV6:
        return head.size == sizeof(ibv_flow_spec_ipv6) ? 3 : 0;
    case IBV_FLOW_SPEC_TCP:
    case IBV_FLOW_SPEC_UDP:
        return head.size == sizeof(ibv_flow_spec_tcp_udp) ? 4 : 0;
    default:
        return 0;
    }
}

// 0 or what the device says to it.
int check(const Device &device, const ibv_flow_attr &attr)
{
    if (attr.comp_mask != 0 || attr.port != 1 || attr.size < sizeof attr || attr.priority > kLowest)
        return EINVAL;
    int error = attr.type != IBV_FLOW_ATTR_NORMAL || attr.flags != 0 ? EOPNOTSUPP : 0;
    int below = 0;
    const bool whole = each_spec(reinterpret_cast<const std::byte *>(&attr), [&](const SpecHead &head, const auto *) {
        const int layer = layer_of(head);
        if (layer == 0)
            error = EOPNOTSUPP;
        const bool in_order = layer == 0 || layer > below; // each layer once, from below
        below = layer;
        return in_order;
    });
    if (!whole)
        return EINVAL;
    const auto kept = std::ranges::count(world().flows, &device, &Flow::nic);
    return error == 0 && static_cast<std::size_t>(kept) >= device.config.max_flows ? ENOMEM : error;
}

bool equal(const void *field, const void *value, const void *mask, std::size_t size)
{
    const auto *f = static_cast<const std::uint8_t *>(field);
    const auto *v = static_cast<const std::uint8_t *>(value);
    const auto *m = static_cast<const std::uint8_t *>(mask);
    for (std::size_t i = 0; i < size; ++i) {
        if (((f[i] ^ v[i]) & m[i]) != 0)
            return false;
    }
    return true;
}

template <typename Field> bool equal(const Field &field, const Field &value, const Field &mask)
{
    return equal(&field, &value, &mask, sizeof field);
}

bool fits(const ibv_flow_spec_eth &spec, const Headers &h)
{
    return equal(h.target_mac, spec.val.dst_mac, spec.mask.dst_mac, 6) &&
           equal(h.source_mac, spec.val.src_mac, spec.mask.src_mac, 6) &&
           equal(h.ether_type, spec.val.ether_type, spec.mask.ether_type) &&
           equal(h.vlan_tag, spec.val.vlan_tag, spec.mask.vlan_tag);
}

bool fits(const ibv_flow_spec_ipv4 &spec, const Headers &h)
{
    return h.ip == Headers::Ip::v4 && equal(h.source, &spec.val.src_ip, &spec.mask.src_ip, 4) &&
           equal(h.target, &spec.val.dst_ip, &spec.mask.dst_ip, 4);
}

bool fits(const ibv_flow_spec_ipv6 &spec, const Headers &h)
{
    const std::uint8_t next = h.protocol;
    return h.ip == Headers::Ip::v6 && equal(h.source, spec.val.src_ip, spec.mask.src_ip, 16) &&
           equal(h.target, spec.val.dst_ip, spec.mask.dst_ip, 16) && equal(next, spec.val.next_hdr, spec.mask.next_hdr);
}

bool fits(const ibv_flow_spec_tcp_udp &spec, const Headers &h)
{
    const std::uint8_t protocol = spec.type == IBV_FLOW_SPEC_TCP ? IPPROTO_TCP : IPPROTO_UDP;
    return h.ports_known && h.protocol == protocol && equal(h.target_port, spec.val.dst_port, spec.mask.dst_port) &&
           equal(h.source_port, spec.val.src_port, spec.mask.src_port);
}

} // namespace

bool matches(const Flow &flow, const Headers &headers)
{
    return each_spec(flow.rule.data(), [&headers](const SpecHead &head, const std::byte *bytes) {
        switch (static_cast<unsigned>(head.type)) {
        case IBV_FLOW_SPEC_ETH:
            return fits(read<ibv_flow_spec_eth>(bytes), headers);
        case IBV_FLOW_SPEC_IPV4:
            return fits(read<ibv_flow_spec_ipv4>(bytes), headers);
        case IBV_FLOW_SPEC_IPV6:
            return fits(read<ibv_flow_spec_ipv6>(bytes), headers);
        default:
            return fits(read<ibv_flow_spec_tcp_udp>(bytes), headers);
        }
    });
}

ibv_flow *create_flow(ibv_qp *queue, ibv_flow_attr *attr)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    if (const int error = take_fault("create_flow"))
        return null_errno(error);
    Qp &qp = *of(queue);
    if (nic(qp.context).removed)
        return null_errno(EIO);
    if (qp.qp_type != IBV_QPT_RAW_PACKET && qp.qp_type != IBV_QPT_UD)
        return null_errno(EINVAL);
    if (const int error = check(nic(qp.context), *attr))
        return null_errno(error);
    auto *made = new Flow;
    static_cast<ibv_flow &>(*made) = {};
    made->context = qp.context;
    made->qp = &qp;
    made->nic = &nic(qp.context);
    made->priority = attr->priority;
    const auto *bytes = reinterpret_cast<const std::byte *>(attr);
    made->rule.assign(bytes, bytes + attr->size);
    ++qp.flows;
    w.flows.push_back(made);
    return made;
}

int destroy_flow(ibv_flow *flow)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    auto *gone = static_cast<Flow *>(flow);
    --gone->qp->flows;
    std::erase(w.flows, gone);
    delete gone;
    return 0;
}

std::vector<std::vector<std::byte>> flows(unsigned device)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    std::vector<std::vector<std::byte>> found;
    for (const Flow *flow : w.flows) {
        if (flow->nic->place == device)
            found.push_back(flow->rule);
    }
    return found;
}

} // namespace vma::sim
