// SPDX-License-Identifier: BSD-2-Clause
// What fi_getinfo says of the local device: an address of another host gives no info, so that other devices and
// providers get their turn, but for reliable datagrams that another provider carries there.
#include "local/list.hpp"

#include <optional>
#include <vector>

#include "core/log.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/info/getinfo.hpp"
#include "ofi/info/host_addresses.hpp"
#include "rdm/open.hpp"

namespace vma::local {
namespace {

using ofi::Address;
using ofi::AddressPair;

// Those of this host that the hints take.
std::vector<AddressPair> pairs_of(const ofi::Query &query, const std::vector<Address> &addresses)
{
    std::vector<AddressPair> pairs;
    for (const Address &address : addresses) {
        if (query.takes(address))
            pairs.push_back({address, {}});
    }
    return pairs;
}

// The source of a connection to this host is the address it goes to, as the kernel's would be.
bool complete(AddressPair &pair)
{
    if (pair.source.empty()) {
        pair.source = pair.destination.reachable();
        pair.source.set_port(0);
    }
    for (const Address *address : {&pair.source, &pair.destination}) {
        if (!address->empty() && !address->is_local()) {
            VMA_DEBUG(core, "%s is not an address of this host", ofi::AddressText(*address).c_str());
            return false;
        }
    }
    return pair.destination.empty() || pair.destination.sa.sa_family == pair.source.sa.sa_family;
}

// Reliable datagrams reach other hosts too, where another provider carries them.
bool complete_beyond(AddressPair &pair)
{
    if (pair.destination.empty() || pair.destination.is_local())
        return complete(pair);
    if (pair.source.empty())
        pair.source = ofi::route_source(pair.destination);
    return !pair.source.empty() && pair.source.is_local() && rdm::reaches_other_hosts(pair.source);
}

void list_offer(const ofi::Query &query, const ofi::Offer &offer, unsigned priority, ofi::InfoList &list)
{
    const bool beyond = &offer == &ofi::kRdmOffer;
    std::vector<AddressPair> pairs = query.pairs;
    if (query.attributes_only)
        pairs.emplace_back();
    else if (pairs.empty())
        pairs = pairs_of(query, beyond ? ofi::reachable_addresses(query.family()) : ofi::host_addresses());
    else
        std::erase_if(pairs, [&](AddressPair &pair) { return !(beyond ? complete_beyond(pair) : complete(pair)); });
    for (const AddressPair &pair : pairs)
        list.add(query, offer, pair, priority);
}

} // namespace

void list_infos(const ofi::Query &query, ofi::InfoList &list) noexcept
{
    const std::optional<unsigned> priority = query.priority_of(core::DeviceKind::local, ofi::kLocalName);
    if (!priority || !query.filters.admits_device(ofi::kLocalName))
        return;
    // Who asks for nothing in particular takes the first: connections.
    for (const ofi::Offer *offer : {&ofi::kMsgOffer, &ofi::kDgramOffer, &ofi::kRdmOffer}) {
        if (query.takes(*offer))
            list_offer(query, *offer, *priority, list);
    }
}

} // namespace vma::local
