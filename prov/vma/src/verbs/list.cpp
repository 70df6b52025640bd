// SPDX-License-Identifier: BSD-2-Clause
// What fi_getinfo says of the RDMA devices: for each pair of addresses the devices that have the source, and where none
// is given, the one on the kernel's route to the peer.
#include "verbs/list.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/choose.hpp"
#include "core/sysfs.hpp"
#include "ofi/info/getinfo.hpp"
#include "ofi/info/host_addresses.hpp"
#include "verbs/describe.hpp"
#include "verbs/nic.hpp"

namespace vma::verbs {
namespace {

using ofi::AddressPair;

// Hints that name another device or fabric: nothing has to be asked for.
bool is_meant(const fi_info *hints)
{
    if (hints == nullptr)
        return true;
    const std::uint32_t type = ofi::endpoint_type(hints->ep_attr);
    const char *fabric = hints->fabric_attr != nullptr ? hints->fabric_attr->name : nullptr;
    const char *domain = hints->domain_attr != nullptr ? hints->domain_attr->name : nullptr;
    return (fabric == nullptr || std::strcmp(fabric, kFabricName) == 0) &&
           (domain == nullptr || std::strcmp(domain, ofi::kLocalName) != 0) &&
           (type == FI_EP_UNSPEC || type == FI_EP_MSG);
}

// Which device may carry which pair.
struct Choice {
    const Nic *nic;
    AddressPair pair;
    unsigned priority;
};

// One that the user admits, with the priority of that.
struct Admitted {
    Place place;
    unsigned priority;
};

// Each place of the source's; a wildcard is everywhere.
void find_choices(const std::vector<Admitted> &places, const AddressPair &asked, std::vector<Choice> &choices)
{
    AddressPair pair = asked;
    if (pair.source.empty())
        pair.source = ofi::route_source(pair.destination);
    if (pair.source.empty() || (!pair.destination.empty() && pair.destination.sa.sa_family != pair.source.sa.sa_family))
        return;
    const bool anywhere = pair.source.is_wildcard();
    for (const auto &[place, priority] : places) {
        if (place.address.sa.sa_family != pair.source.sa.sa_family ||
            (!anywhere && !place.address.same_host(pair.source)))
            continue;
        AddressPair here = {place.address, pair.destination};
        here.source.set_port(pair.source.port());
        choices.push_back({place.nic, here, priority});
    }
}

// The devices in the order of preference: the nearest to the calling thread first.
std::vector<const Nic *> ranked(const ofi::Query &query, const std::vector<Choice> &choices)
{
    std::vector<const Nic *> nics;
    std::vector<core::Candidate> candidates;
    for (const Choice &choice : choices) {
        if (std::find(nics.begin(), nics.end(), choice.nic) != nics.end())
            continue;
        nics.push_back(choice.nic);
        core::Candidate &candidate = candidates.emplace_back();
        candidate.name = choice.nic->name;
        candidate.node = core::rdma_numa_node(choice.nic->name);
    }
    core::Filters devices_only; // each address has passed the others already
    devices_only.devices = query.filters.devices;
    std::vector<const Nic *> result;
    for (const std::size_t place : core::choose(candidates, devices_only))
        result.push_back(nics[place]);
    return result;
}

void list_choices(const ofi::Query &query, const std::vector<Choice> &choices, ofi::InfoList &list)
{
    for (const Nic *nic : ranked(query, choices)) {
        if (!query.takes(nic->offer))
            continue;
        for (const Choice &choice : choices) {
            if (choice.nic != nic)
                continue;
            list.add(query, nic->offer, choice.pair, choice.priority);
            if (list.last() != nullptr && list.last()->nic == nullptr)
                describe(*nic, choice.pair.source, *list.last());
            if (query.attributes_only)
                break;
        }
    }
}

std::vector<Admitted> admitted_places(const ofi::Query &query)
{
    std::vector<Admitted> admitted;
    for (Place &place : places()) {
        const std::optional<in6_addr> address = core::ip_of(&place.address.sa);
        if (!address || !query.filters.admits(place.interface, *address))
            continue;
        if (const auto priority = query.priority_of(core::DeviceKind::rdma, place.nic->name, place.interface, *address))
            admitted.push_back({std::move(place), *priority});
    }
    return admitted;
}

} // namespace

void list_infos(const ofi::Query &query, ofi::InfoList &list) noexcept
{
    if (!is_meant(query.hints) || !may_have_devices())
        return;
    const std::vector<Admitted> all = admitted_places(query);
    std::vector<Choice> choices;
    for (const AddressPair &pair : query.pairs)
        find_choices(all, pair, choices);
    if (query.attributes_only || query.pairs.empty()) {
        for (const auto &[place, priority] : all) {
            if (query.attributes_only)
                choices.push_back({place.nic, {}, priority});
            else if (query.takes(place.address))
                choices.push_back({place.nic, {place.address, {}}, priority});
        }
    }
    list_choices(query, choices, list);
}

} // namespace vma::verbs
