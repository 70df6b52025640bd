// SPDX-License-Identifier: BSD-2-Clause
// What fi_getinfo says of the local device: an address of another host gives no info, so that other devices and providers
// get their turn.
#include "local/list.hpp"

#include <ifaddrs.h>
#include <memory>
#include <net/if.h>

#include "core/log.hpp"
#include "ofi/attr.hpp"
#include "ofi/getinfo.hpp"

namespace vma::local {
namespace {

using ofi::Address;
using ofi::AddressPair;

// Addresses of the interfaces that are up, IPv4 first. Link-local ones need a scope that their holders lose.
void add_interfaces(const ofi::Query &query, std::vector<AddressPair> &pairs)
{
    ifaddrs *list = nullptr;
    if (::getifaddrs(&list) != 0)
        return;
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs *item = list; item != nullptr; item = item->ifa_next) {
            if (item->ifa_addr == nullptr || item->ifa_addr->sa_family != family || (item->ifa_flags & IFF_UP) == 0)
                continue;
            AddressPair pair;
            if (!pair.source.assign(item->ifa_addr, sizeof(sockaddr_in6)) || !query.takes(pair.source))
                continue;
            if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&pair.source.v6.sin6_addr))
                continue;
            pairs.push_back(pair);
        }
    }
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

} // namespace

void list_infos(const ofi::Query &query, ofi::InfoList &list) noexcept
{
    if (!query.filters.admits_device(ofi::kLocalName))
        return;
    const ofi::Offer *offers[3];
    std::size_t count = 0;
    // Who asks for nothing in particular takes the first: connections.
    for (const ofi::Offer *offer : {&ofi::kMsgOffer, &ofi::kDgramOffer, &ofi::kRdmOffer}) {
        if (query.takes(*offer))
            offers[count++] = offer;
    }
    if (count == 0)
        return;
    std::vector<AddressPair> pairs = query.pairs;
    if (query.attributes_only)
        pairs.emplace_back();
    else if (pairs.empty())
        add_interfaces(query, pairs);
    else
        std::erase_if(pairs, [](AddressPair &pair) { return !complete(pair); });
    for (std::size_t i = 0; i < count; ++i) {
        for (const AddressPair &pair : pairs)
            list.add(query, *offers[i], pair);
    }
}

} // namespace vma::local
