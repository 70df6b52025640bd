// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/transport/fabric_objects.hpp"

#include <cerrno>
#include <cstring>

namespace vma::lat {

namespace {

constexpr std::uint32_t kApi = FI_VERSION(1, 17);

} // namespace

Error fabric_error(const char *what, long result)
{
    return error(kExitFailed, "%s: %s", what, libfabric().strerror(static_cast<int>(result < 0 ? -result : result)));
}

Failure find_endpoints(const Wanted &wanted, const Address &address, std::uint64_t flags, Info &info)
{
    const Info hints(libfabric().dupinfo(nullptr));
    if (!hints)
        return fabric_error("fi_dupinfo", FI_ENOMEM);
    hints->caps = wanted.caps;
    hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
    hints->tx_attr->msg_order = wanted.order;
    hints->ep_attr->type = wanted.type;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(wanted.provider.c_str()); // both are freed with the hints
    if (!wanted.domain.empty())
        hints->domain_attr->name = strdup(wanted.domain.c_str());
    fi_info *found = nullptr;
    const int result = libfabric().getinfo(kApi, address.host().c_str(), std::to_string(address.port()).c_str(), flags,
                                           hints.get(), &found);
    if (result == -FI_ENODATA || result == -FI_ENOSYS)
        return error(kExitFailed,
                     "libfabric has no %s endpoint%s of provider %s%s%s for %s; 'fi_info -p %s' shows what there is, "
                     "and FI_PROVIDER_PATH says where providers are",
                     wanted.type == FI_EP_MSG ? "FI_EP_MSG" : "FI_EP_DGRAM",
                     (wanted.caps & FI_RMA) != 0 ? " with FI_RMA" : "", wanted.provider.c_str(),
                     wanted.domain.empty() ? "" : ", domain ", wanted.domain.c_str(), address.host().c_str(),
                     wanted.provider.c_str());
    if (result != 0)
        return fabric_error("fi_getinfo", result);
    info.reset(found);
    if (info->ep_attr->max_msg_size < wanted.size)
        return error(kExitUsage, "a message of provider %s can't have %zu bytes: %zu are possible",
                     wanted.provider.c_str(), wanted.size, info->ep_attr->max_msg_size);
    return {};
}

} // namespace vma::lat
