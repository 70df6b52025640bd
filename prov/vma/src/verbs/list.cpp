// SPDX-License-Identifier: BSD-2-Clause
// What fi_getinfo says of the RDMA devices: for each pair of addresses the devices that have the source, and where none is
// given, the one on the kernel's route to the peer.
#include "verbs/list.hpp"

#include <algorithm>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "core/log.hpp"
#include "ofi/getinfo.hpp"
#include "verbs/nic.hpp"

namespace vma::verbs {
namespace {

using ofi::Address;
using ofi::AddressPair;

// The address that the kernel's routes choose; empty without a route. By the numbers of the calls: the preload library's
// own socket() is not meant for us.
Address route_source(const Address &destination)
{
    Address source;
    const auto fd = static_cast<int>(::syscall(SYS_socket, destination.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return source;
    Address target = destination;
    target.set_port(9); // any but 0; nothing is sent
    Address found;
    socklen_t length = sizeof found.v6;
    if (::syscall(SYS_connect, fd, &target.sa, static_cast<socklen_t>(target.size())) == 0 &&
        ::syscall(SYS_getsockname, fd, &found.sa, &length) == 0)
        source = found;
    ::syscall(SYS_close, fd);
    source.set_port(0);
    return source;
}

// Hints that name another device or fabric: nothing has to be asked for.
bool is_meant(const fi_info *hints)
{
    if (hints == nullptr)
        return true;
    const char *fabric = hints->fabric_attr != nullptr ? hints->fabric_attr->name : nullptr;
    const char *domain = hints->domain_attr != nullptr ? hints->domain_attr->name : nullptr;
    return (fabric == nullptr || std::strcmp(fabric, kFabricName) == 0) &&
           (domain == nullptr || std::strcmp(domain, ofi::kLocalName) != 0) &&
           (hints->ep_attr == nullptr || hints->ep_attr->type == FI_EP_UNSPEC || hints->ep_attr->type == FI_EP_MSG);
}

void list_place(const ofi::Query &query, const Place &place, const AddressPair &pair, ofi::InfoList &list)
{
    if (query.takes(place.nic->offer))
        list.add(query, place.nic->offer, pair);
}

// Each place of the source's; a wildcard is everywhere.
void list_pair(const ofi::Query &query, const std::vector<Place> &places, const AddressPair &asked, ofi::InfoList &list)
{
    AddressPair pair = asked;
    if (pair.source.empty())
        pair.source = route_source(pair.destination);
    if (pair.source.empty() || (!pair.destination.empty() && pair.destination.sa.sa_family != pair.source.sa.sa_family))
        return;
    const bool anywhere = pair.source.is_wildcard();
    for (const Place &place : places) {
        if (place.address.sa.sa_family != pair.source.sa.sa_family ||
            (!anywhere && !place.address.same_host(pair.source)))
            continue;
        AddressPair here = {place.address, pair.destination};
        here.source.set_port(pair.source.port());
        list_place(query, place, here, list);
    }
}

// Attributes alone: each device once.
void list_devices(const ofi::Query &query, const std::vector<Place> &places, ofi::InfoList &list)
{
    std::vector<const Nic *> seen;
    for (const Place &place : places) {
        if (std::find(seen.begin(), seen.end(), place.nic) == seen.end()) {
            seen.push_back(place.nic);
            list_place(query, place, {}, list);
        }
    }
}

} // namespace

void list_infos(const ofi::Query &query, ofi::InfoList &list) noexcept
{
    if (!is_meant(query.hints) || !may_have_devices())
        return;
    const std::vector<Place> all = places();
    if (query.attributes_only)
        return list_devices(query, all, list);
    for (const AddressPair &pair : query.pairs)
        list_pair(query, all, pair, list);
    if (!query.pairs.empty())
        return;
    for (const Place &place : all) {
        if (query.takes(place.address))
            list_place(query, place, {place.address, {}}, list);
    }
}

} // namespace vma::verbs
