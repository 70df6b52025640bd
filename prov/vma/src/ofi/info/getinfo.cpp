// SPDX-License-Identifier: BSD-2-Clause
// Which addresses an fi_getinfo call means: node, service, the hints' own. What a device has to offer for them, it says
// itself.
#include "ofi/info/getinfo.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <netdb.h>
#include <vector>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "core/quoted.hpp"
#include "ofi/address.hpp"
#include "ofi/address_format.hpp"
#include "ofi/device.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/info/config.hpp"
#include "ofi/info/device_filters.hpp"
#include "ofi/info/info.hpp"

namespace vma::ofi {
namespace {

int family_of(std::uint32_t format)
{
    return format == FI_SOCKADDR_IN ? AF_INET : format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_UNSPEC;
}

// Name resolution; the addresses of `node` in the resolver's order.
int resolve(const char *node, const char *service, std::uint64_t flags, int family, std::vector<Address> &found)
{
    addrinfo wanted{};
    wanted.ai_family = family;
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
        if (address.assign(item->ai_addr, item->ai_addrlen))
            found.push_back(address);
    }
    return found.empty() ? -FI_ENODATA : 0;
}

// The same of a string that names both, in FI_ADDR_STR's form. One that is another provider's is for that one to take.
int resolve_string(const char *node, const char *service, std::uint64_t flags, std::uint32_t format,
                   std::vector<Address> &found)
{
    if (service != nullptr) {
        VMA_DEBUG(core, "node %s is an address and a port: a service, %s, is refused beside it", node, service);
        return -FI_EINVAL;
    }
    AddressParts parts;
    if (const char *wrong = split_address_string(node, parts)) {
        VMA_DEBUG(core, "node %s is no address of this provider: %s", core::quoted(node).c_str(), wrong);
        return -FI_ENODATA;
    }
    const int asked = family_of(format);
    if (asked != AF_UNSPEC && parts.family != AF_UNSPEC && asked != parts.family) {
        VMA_DEBUG(core, "node %s is not of the format that addr_format says", core::quoted(node).c_str());
        return -FI_ENODATA;
    }
    return resolve(parts.host.empty() ? nullptr : parts.host.c_str(), parts.service.c_str(), flags,
                   asked != AF_UNSPEC ? asked : parts.family, found);
}

// A hint's address, if it has one: 1 if so, 0 if not, negative if it is none of ours.
int hinted_address(const char *hint, const void *addr, std::size_t length, std::uint32_t format, Address &address)
{
    if (addr == nullptr || length == 0)
        return 0;
    if (const char *wrong = AddressFormat(format).parse(addr, length, address)) {
        VMA_DEBUG(core, "hint %s: not an address of the format that addr_format says: %s", hint, wrong);
        return -FI_ENODATA;
    }
    if (family_of(format) != AF_UNSPEC && address.sa.sa_family != family_of(format)) {
        VMA_DEBUG(core, "hint %s: not of the family that addr_format says", hint);
        return -FI_ENODATA;
    }
    return 1;
}

// Empty pairs: any address will do.
int asked_addresses(const char *node, const char *service, std::uint64_t flags, const fi_info *hints,
                    std::vector<AddressPair> &pairs)
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
        if (has_source != 0 || has_destination != 0)
            pairs.push_back({source, destination});
        return 0;
    }
    std::vector<Address> resolved;
    const int error = is_address_string(node) ? resolve_string(node, service, flags, format, resolved)
                                              : resolve(node, service, flags, family_of(format), resolved);
    if (error != 0)
        return error;
    for (const Address &address : resolved) {
        if ((flags & FI_SOURCE) != 0)
            pairs.push_back({address, destination});
        else
            pairs.push_back({source, address});
    }
    return 0;
}

// An asked FI_SOCKADDR or FI_ADDR_STR stays what it is; else the format is the address's own.
std::uint32_t format_for(const fi_info *hints, const Address &address)
{
    if (hints != nullptr && (hints->addr_format == FI_SOCKADDR || hints->addr_format == FI_ADDR_STR))
        return hints->addr_format;
    return address.sa.sa_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
}

InfoPtr build(const Query &query, const Offer &offer, const AddressPair &pair)
{
    InfoPtr info = make_info(offer);
    if (!info)
        return info;
    if (query.hints != nullptr)
        apply_hints(query.version, offer, *query.hints, *info);
    else if (FI_VERSION_LT(query.version, FI_VERSION(1, 5)))
        info->domain_attr->mr_mode = offer.domain.mr_mode != 0 ? kMrBasic : kMrScalable;
    info->addr_format = format_for(query.hints, pair.source);
    if (!set_source(*info, pair.source) || !set_destination(*info, pair.destination))
        info.reset();
    return info;
}

} // namespace

int Query::family() const noexcept
{
    return hints != nullptr ? family_of(hints->addr_format) : AF_UNSPEC;
}

bool Query::takes(const Address &address) const noexcept
{
    return family() == AF_UNSPEC ? !address.empty() : address.sa.sa_family == family();
}

bool Query::takes(const Offer &offer) const noexcept
{
    return hints == nullptr || hints_fit(version, offer, *hints);
}

std::optional<unsigned> Query::priority_of(core::DeviceKind kind, std::string_view device, std::string_view interface,
                                           const in6_addr &address) const noexcept
{
    return file != nullptr ? file->priority_of(kind, device, interface, address) : core::kUsualPriority;
}

void InfoList::add(const Query &query, const Offer &offer, const AddressPair &pair, unsigned priority) noexcept
{
    InfoPtr next = build(query, offer, pair);
    if (next)
        entries_.push_back({priority, std::move(next)});
    else
        out_of_memory_ = true;
}

int InfoList::take(fi_info **info) noexcept
{
    if (out_of_memory_)
        return -FI_ENOMEM;
    std::ranges::stable_sort(entries_, std::greater(), &Entry::priority);
    fi_info **end = info;
    for (Entry &entry : entries_) {
        *end = entry.info.release();
        end = &(*end)->next;
    }
    return *info != nullptr ? 0 : -FI_ENODATA;
}

int getinfo(std::uint32_t version, const char *node, const char *service, std::uint64_t flags, const fi_info *hints,
            fi_info **info)
{
    *info = nullptr;
    const std::optional<core::Filters> filters = device_filters();
    const Configuration configured = configuration();
    if (!filters || !configured.usable)
        return -FI_ENODATA;
    Query query{version, hints, *filters, configured.file, (flags & FI_PROV_ATTR_ONLY) != 0, {}};
    if (!query.attributes_only) {
        if (const int error = asked_addresses(node, service, flags, hints, query.pairs))
            return error;
    }
    InfoList list;
    for (const Device *device : kDevices)
        device->list(query, list);
    return list.take(info);
}

} // namespace vma::ofi
