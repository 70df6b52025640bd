// SPDX-License-Identifier: BSD-2-Clause
// Which addresses an fi_getinfo call means: node, service, the hints' own, or every interface of the host. An address
// of another host gives no info, so that a program's other providers get their turn.
#include "ofi/getinfo.hpp"

#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <vector>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ofi/address.hpp"
#include "ofi/attr.hpp"
#include "ofi/info.hpp"

namespace vma::ofi {
namespace {

struct AddressPair {
    Address source;
    Address destination; // empty without a peer
};

using AddressPairs = std::vector<AddressPair>;

bool family_fits(std::uint32_t format, const Address &address)
{
    switch (format) {
    case FI_SOCKADDR_IN:
        return address.sa.sa_family == AF_INET;
    case FI_SOCKADDR_IN6:
        return address.sa.sa_family == AF_INET6;
    default:
        return !address.empty();
    }
}

int family_of(std::uint32_t format)
{
    return format == FI_SOCKADDR_IN ? AF_INET : format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_UNSPEC;
}

// Name resolution; the addresses of `node` in the resolver's order.
int resolve(const char *node, const char *service, std::uint64_t flags, std::uint32_t format,
            std::vector<Address> &found)
{
    addrinfo wanted{};
    wanted.ai_family = family_of(format);
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags =
        ((flags & FI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0) | ((flags & FI_SOURCE) != 0 ? AI_PASSIVE : 0);
    addrinfo *list = nullptr;
    const int error = ::getaddrinfo(node, service, &wanted, &list);
    if (error != 0) {
        VMA_DEBUG(core, "node %s service %s: %s", node ? node : "-", service ? service : "-", ::gai_strerror(error));
        return error == EAI_MEMORY ? -FI_ENOMEM : -FI_ENODATA;
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
    for (const addrinfo *item = list; item != nullptr; item = item->ai_next) {
        Address address;
        if (address.assign(item->ai_addr, item->ai_addrlen) && family_fits(format, address))
            found.push_back(address);
    }
    return found.empty() ? -FI_ENODATA : 0;
}

// A hint's address, if it has one: 1 if so, 0 if not, negative if it is none of ours.
int hinted_address(const char *hint, const void *addr, std::size_t length, std::uint32_t format, Address &address)
{
    if (addr == nullptr || length == 0)
        return 0;
    if (!address.assign(addr, length) || !family_fits(format, address)) {
        VMA_DEBUG(core, "hint %s: not a socket address of the format that addr_format says", hint);
        return -FI_ENODATA;
    }
    return 1;
}

// Addresses of the interfaces that are up, IPv4 first. Link-local ones need a scope that their holders lose.
int interface_addresses(std::uint32_t format, AddressPairs &pairs)
{
    ifaddrs *list = nullptr;
    if (::getifaddrs(&list) != 0)
        return -errno;
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs *item = list; item != nullptr; item = item->ifa_next) {
            if (item->ifa_addr == nullptr || item->ifa_addr->sa_family != family || (item->ifa_flags & IFF_UP) == 0)
                continue;
            AddressPair pair;
            if (!pair.source.assign(item->ifa_addr, sizeof(sockaddr_in6)) || !family_fits(format, pair.source))
                continue;
            if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&pair.source.v6.sin6_addr))
                continue;
            pairs.push_back(pair);
        }
    }
    return pairs.empty() ? -FI_ENODATA : 0;
}

// What the hints' addresses say of one pair, where node and service left it open. The source of a connection to this
// host is the address it goes to, as the kernel's would be.
bool complete(AddressPair &pair, const Address &hinted_source, const Address &hinted_destination)
{
    if (pair.source.empty())
        pair.source = hinted_source;
    if (pair.destination.empty())
        pair.destination = hinted_destination;
    if (pair.source.empty()) {
        pair.source = pair.destination.reachable();
        pair.source.set_port(0);
    }
    for (const Address *address : {&pair.source, &pair.destination}) {
        if (!address->empty() && !address->is_local()) {
            VMA_DEBUG(core, "%s is not an address of this host", AddressText(*address).c_str());
            return false;
        }
    }
    return pair.destination.empty() || pair.destination.sa.sa_family == pair.source.sa.sa_family;
}

int choose_addresses(const char *node, const char *service, std::uint64_t flags, const fi_info *hints,
                     AddressPairs &pairs)
{
    const std::uint32_t format = hints != nullptr ? hints->addr_format : std::uint32_t{FI_FORMAT_UNSPEC};
    Address source;
    Address destination;
    int has_source = 0;
    int has_destination = 0;
    if (hints != nullptr) {
        has_source = hinted_address("src_addr", hints->src_addr, hints->src_addrlen, format, source);
        has_destination = hinted_address("dest_addr", hints->dest_addr, hints->dest_addrlen, format, destination);
        if (has_source < 0 || has_destination < 0)
            return -FI_ENODATA;
    }
    if (node == nullptr && service == nullptr) {
        if (has_source == 0 && has_destination == 0)
            return interface_addresses(format, pairs);
        pairs.emplace_back();
    } else {
        std::vector<Address> resolved;
        if (const int error = resolve(node, service, flags, format, resolved))
            return error;
        for (const Address &address : resolved) {
            AddressPair &pair = pairs.emplace_back();
            ((flags & FI_SOURCE) != 0 ? pair.source : pair.destination) = address;
        }
    }
    std::erase_if(pairs, [&](AddressPair &pair) { return !complete(pair, source, destination); });
    return pairs.empty() ? -FI_ENODATA : 0;
}

// An asked FI_SOCKADDR stays what it is; else the format is the address's own.
std::uint32_t format_for(const fi_info *hints, const Address &address)
{
    if (hints != nullptr && hints->addr_format == FI_SOCKADDR)
        return FI_SOCKADDR;
    return address.sa.sa_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
}

InfoPtr build(std::uint32_t version, const Offer &offer, const fi_info *hints, const AddressPair &pair)
{
    InfoPtr info = make_info(offer);
    if (!info)
        return info;
    if (hints != nullptr)
        apply_hints(version, offer, *hints, *info);
    else if (FI_VERSION_LT(version, FI_VERSION(1, 5)))
        info->domain_attr->mr_mode = FI_MR_SCALABLE;
    info->addr_format = format_for(hints, pair.source);
    if (!set_source(*info, pair.source) || !set_destination(*info, pair.destination))
        info.reset();
    return info;
}

} // namespace

int getinfo(std::uint32_t version, const char *node, const char *service, std::uint64_t flags, const fi_info *hints,
            fi_info **info)
{
    *info = nullptr;
    const Offer *offers[2];
    std::size_t offer_count = 0;
    for (const Offer *offer : {&kMsgOffer, &kDgramOffer}) {
        if (hints == nullptr || hints_fit(version, *offer, *hints))
            offers[offer_count++] = offer;
    }
    if (offer_count == 0)
        return -FI_ENODATA;
    AddressPairs pairs;
    if ((flags & FI_PROV_ATTR_ONLY) != 0)
        pairs.emplace_back();
    else if (const int error = choose_addresses(node, service, flags, hints, pairs))
        return error;
    InfoPtr head;
    fi_info *tail = nullptr;
    for (std::size_t i = 0; i < offer_count; ++i) {
        for (const AddressPair &pair : pairs) {
            InfoPtr next = build(version, *offers[i], hints, pair);
            if (!next)
                return -FI_ENOMEM;
            fi_info *raw = next.get();
            if (tail == nullptr)
                head = std::move(next);
            else
                tail->next = next.release();
            tail = raw;
        }
    }
    *info = head.release();
    return 0;
}

} // namespace vma::ofi
