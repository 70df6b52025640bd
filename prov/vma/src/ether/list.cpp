// SPDX-License-Identifier: BSD-2-Clause
// For each pair of addresses the NIC that the kernel's routes lead through; without a peer, those that have the source.
#include "ether/list.hpp"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/choose.hpp"
#include "core/sysfs.hpp"
#include "ether/address.hpp"
#include "ether/netlink/cache.hpp"
#include "ether/nic.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ether {
namespace {

constexpr std::uint64_t kTxCaps = FI_MSG | FI_SEND;
constexpr std::uint64_t kRxCaps = FI_MSG | FI_RECV;
constexpr std::uint64_t kDomainCaps = FI_REMOTE_COMM;

struct Choice {
    std::string nic;
    ofi::AddressPair pair;
    unsigned priority;
};

bool is_meant(const fi_info *hints) noexcept
{
    if (hints == nullptr)
        return true;
    const char *fabric = hints->fabric_attr != nullptr ? hints->fabric_attr->name : nullptr;
    const std::uint32_t type = ofi::endpoint_type(hints->ep_attr);
    return (fabric == nullptr || std::strcmp(fabric, kFabricName) == 0) &&
           (type == FI_EP_UNSPEC || type == FI_EP_VMA_STREAM || type == FI_EP_DGRAM);
}

bool has(const __user_cap_data_struct *sets, unsigned capability) noexcept
{
    return (sets[capability / 32].effective & 1U << capability % 32) != 0;
}

// AF_XDP or raw packets, steering programs, and asking for neighbours (doc/raw-ethernet.md, "Rights").
bool may_use_ports() noexcept
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
    if (::syscall(SYS_capget, &header, sets) != 0)
        return false;
    const bool may_steer = has(sets, CAP_BPF) || has(sets, CAP_SYS_ADMIN) || configured_nic_kind() == NicKind::kRaw;
    return has(sets, CAP_NET_RAW) && has(sets, CAP_NET_ADMIN) && may_steer;
}

// The NIC below an interface: "" where none can be used.
std::string nic_of(const NetState &net, unsigned interface)
{
    Outlet outlet;
    if (!net.outlet(interface, outlet))
        return {};
    const Link *const link = net.link(outlet.interface);
    const bool usable = link != nullptr && link->up && !link->loopback && link->mac != inet::Mac{};
    return usable ? link->name : std::string();
}

// Nothing: the user does not admit it.
std::optional<unsigned> priority_of(const ofi::Query &query, const std::string &nic, const inet::IpAddress &address)
{
    const ofi::Address text = to_socket_address({address, 0});
    const std::optional<in6_addr> ip = core::ip_of(&text.sa);
    if (nic.empty() || !ip || !query.filters.admits_device(nic) || !query.filters.admits(nic, *ip))
        return std::nullopt;
    return query.priority_of(core::DeviceKind::ethernet, nic, nic, *ip);
}

// The peer's route tells the NIC, and the source where none is given.
void choose_by_route(const ofi::Query &query, NetState &net, const ofi::AddressPair &asked,
                     std::vector<Choice> &choices)
{
    RouteQuery question;
    question.destination = to_endpoint(asked.destination).address;
    if (!asked.source.empty() && !asked.source.is_wildcard())
        question.source = to_endpoint(asked.source).address;
    Route route;
    if (net.route(question, route) != 0 || route.kind != RouteKind::kUnicast)
        return;
    const inet::IpAddress source = question.source.is_any() ? route.source : question.source;
    const std::string nic = nic_of(net, route.interface);
    if (const auto priority = priority_of(query, nic, source))
        choices.push_back({nic, {to_socket_address({source, asked.source.port()}), asked.destination}, *priority});
}

// Each NIC that has the source; a wildcard is everywhere.
void choose_by_source(const ofi::Query &query, const NetState &net, const ofi::Address &source,
                      std::vector<Choice> &choices)
{
    const bool anywhere = source.empty() || source.is_wildcard();
    for (const LocalAddress &local : net.addresses()) {
        ofi::Address here = to_socket_address({local.address, source.port()});
        const bool scoped = !local.address.is_v4() && IN6_IS_ADDR_LINKLOCAL(&here.v6.sin6_addr);
        const bool fits = source.empty()
                              ? query.takes(here)
                              : here.sa.sa_family == source.sa.sa_family && (anywhere || here.same_host(source));
        const std::string nic = nic_of(net, local.interface);
        const std::optional<unsigned> priority = priority_of(query, nic, local.address);
        if (!fits || scoped || !local.usable || !priority)
            continue;
        const bool again = std::any_of(choices.begin(), choices.end(),
                                       [&](const Choice &known) { return anywhere && known.nic == nic; });
        if (!again)
            choices.push_back({nic, {here, {}}, *priority});
    }
}

// The nearest to the calling thread first.
std::vector<std::string> ranked(const std::vector<Choice> &choices)
{
    std::vector<core::Candidate> candidates;
    for (const Choice &choice : choices) {
        const bool again = std::any_of(candidates.begin(), candidates.end(),
                                       [&](const core::Candidate &known) { return known.name == choice.nic; });
        if (again)
            continue;
        core::Candidate &candidate = candidates.emplace_back();
        candidate.name = choice.nic;
        candidate.node = core::net_numa_node(choice.nic);
    }
    std::vector<std::string> names;
    for (const std::size_t place : core::choose(candidates, {})) // the filters have been asked
        names.push_back(candidates[place].name);
    return names;
}

// What a NIC offers neither kind of endpoint: remote data, counters, shared receives, details of errors.
ofi::Offer nic_offer(const ofi::Offer &base, const char *nic) noexcept
{
    ofi::Offer offer = base;
    offer.fabric = kFabricName;
    offer.name = nic;
    offer.domain.caps = kDomainCaps;
    offer.domain.cq_data_size = 0;
    offer.domain.cntr_cnt = 0;
    offer.domain.max_ep_srx_ctx = 0;
    offer.domain.max_err_data = 0;
    return offer;
}

} // namespace

ofi::Offer stream_offer(const char *nic) noexcept
{
    ofi::Offer offer = nic_offer(ofi::kMsgOffer, nic);
    offer.caps = kTxCaps | kRxCaps | kDomainCaps;
    offer.tx_caps = kTxCaps;
    offer.rx_caps = kRxCaps;
    offer.tx_op_flags = FI_COMPLETION;
    offer.tx.caps = kTxCaps;
    offer.tx.inject_size = 0;
    offer.tx.msg_order = offer.rx.msg_order = FI_ORDER_SAS;
    offer.tx.rma_iov_limit = 0;
    offer.rx.caps = kRxCaps;
    fi_vma_make_stream(&offer.ep);
    offer.ep.protocol = ofi::kStreamProtocol;
    offer.ep.max_order_raw_size = offer.ep.max_order_war_size = offer.ep.max_order_waw_size = 0;
    return offer;
}

ofi::Offer datagram_offer(const char *nic) noexcept
{
    ofi::Offer offer = nic_offer(ofi::kDgramOffer, nic);
    offer.caps = ofi::kDgramTxCaps | ofi::kDgramRxCaps | kDomainCaps;
    offer.asked_caps = 0;
    offer.rx_caps = ofi::kDgramRxCaps;
    offer.ep.protocol = ofi::kUdpProtocol;
    return offer;
}

void list_infos(const ofi::Query &query, ofi::InfoList &list) noexcept
{
    NetState net;
    if (!is_meant(query.hints) || !may_use_ports() || NetState::open(net) != 0)
        return;
    std::vector<Choice> choices;
    if (query.pairs.empty())
        choose_by_source(query, net, {}, choices);
    for (const ofi::AddressPair &pair : query.pairs) {
        if (pair.destination.empty())
            choose_by_source(query, net, pair.source, choices);
        else
            choose_by_route(query, net, pair, choices);
    }
    for (const std::string &nic : ranked(choices)) {
        for (const ofi::Offer &offer : {stream_offer(nic.c_str()), datagram_offer(nic.c_str())}) {
            if (!query.takes(offer))
                continue;
            for (const Choice &choice : choices) {
                if (choice.nic == nic)
                    list.add(query, offer, query.attributes_only ? ofi::AddressPair{} : choice.pair, choice.priority);
            }
        }
    }
}

} // namespace vma::ether
