// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/info/info.hpp"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "ofi/address_format.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/libfabric.hpp"

namespace vma::ofi {
namespace {

// Values of `source` but no pointer of it: what `target` owns is its own.
template <typename Attr> void copy_values(Attr &target, const Attr *source) noexcept
{
    if (source != nullptr)
        target = *source;
}

// libfabric 2.0 has lengthened this one, and the library that allocates may be older than the headers that this was
// compiled with: what both have, which is all that the provider knows of.
void copy_values(fi_domain_attr &target, const fi_domain_attr *source) noexcept
{
    if (source != nullptr)
        std::memcpy(&target, source, offsetof(fi_domain_attr, tclass) + sizeof target.tclass);
}

bool copy_string(char *&target, const char *source) noexcept
{
    target = source != nullptr ? ::strdup(source) : nullptr;
    return source == nullptr || target != nullptr;
}

bool copy_bytes(void *&target, std::size_t &length, const void *source, std::size_t bytes) noexcept
{
    std::free(target);
    target = nullptr;
    length = 0;
    if (source == nullptr || bytes == 0)
        return true;
    target = std::malloc(bytes);
    if (target == nullptr)
        return false;
    std::memcpy(target, source, bytes);
    length = bytes;
    return true;
}

bool copy_attributes(fi_info &to, const fi_info &from) noexcept
{
    copy_values(*to.tx_attr, from.tx_attr);
    copy_values(*to.rx_attr, from.rx_attr);
    copy_values(*to.ep_attr, from.ep_attr);
    copy_values(*to.domain_attr, from.domain_attr);
    copy_values(*to.fabric_attr, from.fabric_attr);
    // No authorization keys: getinfo refuses them.
    to.ep_attr->auth_key = to.domain_attr->auth_key = nullptr;
    to.ep_attr->auth_key_size = to.domain_attr->auth_key_size = 0;
    to.domain_attr->name = to.fabric_attr->name = to.fabric_attr->prov_name = nullptr;
    bool done = copy_string(to.domain_attr->name, from.domain_attr ? from.domain_attr->name : nullptr);
    done &= copy_string(to.fabric_attr->name, from.fabric_attr ? from.fabric_attr->name : nullptr);
    done &= copy_string(to.fabric_attr->prov_name, from.fabric_attr ? from.fabric_attr->prov_name : nullptr);
    return done;
}

} // namespace

void free_info(fi_info *info) noexcept
{
    while (info != nullptr) {
        fi_info *next = info->next;
        std::free(info->src_addr);
        std::free(info->dest_addr);
        std::free(info->tx_attr);
        std::free(info->rx_attr);
        if (info->ep_attr != nullptr)
            std::free(info->ep_attr->auth_key);
        std::free(info->ep_attr);
        if (info->domain_attr != nullptr) {
            std::free(info->domain_attr->auth_key);
            std::free(info->domain_attr->name);
        }
        std::free(info->domain_attr);
        if (info->fabric_attr != nullptr) {
            std::free(info->fabric_attr->name);
            std::free(info->fabric_attr->prov_name);
        }
        std::free(info->fabric_attr);
        if (info->nic != nullptr)
            fi_close(&info->nic->fid);
        std::free(info);
        info = next;
    }
}

InfoPtr make_info(const Offer &offer) noexcept
{
    InfoPtr info(allocate_info());
    if (!info)
        return info;
    info->caps = offer.caps;
    info->mode = offer.mode;
    *info->tx_attr = offer.tx;
    *info->rx_attr = offer.rx;
    *info->ep_attr = offer.ep;
    copy_values(*info->domain_attr, &offer.domain);
    if (!copy_string(info->domain_attr->name, offer.name) || !copy_string(info->fabric_attr->name, offer.fabric))
        info.reset();
    return info;
}

InfoPtr copy_info(const fi_info &source) noexcept
{
    InfoPtr info(allocate_info());
    if (!info)
        return info;
    info->caps = source.caps;
    info->mode = source.mode;
    info->addr_format = source.addr_format;
    info->handle = source.handle;
    bool done = copy_attributes(*info, source);
    done &= copy_bytes(info->src_addr, info->src_addrlen, source.src_addr, source.src_addrlen);
    done &= copy_bytes(info->dest_addr, info->dest_addrlen, source.dest_addr, source.dest_addrlen);
    if (!done)
        info.reset();
    return info;
}

bool set_source(fi_info &info, const Address &address) noexcept
{
    const WrittenAddress written = AddressFormat(&info).write(address);
    return copy_bytes(info.src_addr, info.src_addrlen, written.bytes.data(), written.length);
}

bool set_destination(fi_info &info, const Address &address) noexcept
{
    const WrittenAddress written = AddressFormat(&info).write(address);
    return copy_bytes(info.dest_addr, info.dest_addrlen, written.bytes.data(), written.length);
}

InfoPtr request_info(const fi_info &model, fid_fabric &fabric, const Address &own, const Address &peer,
                     fid_t handle) noexcept
{
    InfoPtr request = copy_info(model);
    if (!request || !set_source(*request, own) || !set_destination(*request, peer))
        return nullptr;
    request->handle = handle;
    if (request->addr_format != FI_SOCKADDR && request->addr_format != FI_ADDR_STR)
        request->addr_format = own.sa.sa_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    request->domain_attr->domain = nullptr;
    request->fabric_attr->fabric = &fabric;
    if (request->fabric_attr->prov_name == nullptr)
        request->fabric_attr->prov_name = ::strdup(kProviderName);
    return request->fabric_attr->prov_name != nullptr ? std::move(request) : nullptr;
}

} // namespace vma::ofi
