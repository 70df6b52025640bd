// SPDX-License-Identifier: BSD-2-Clause
// Finding and opening the provider that carries packets to other hosts.
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <sys/epoll.h>
#include <sys/random.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "core/sysfs.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/info/info.hpp"
#include "ofi/libfabric.hpp"
#include "rdm/network.hpp"
#include "rdm/open.hpp"

namespace vma::rdm {

namespace {

constexpr std::size_t kSends = 64;
constexpr std::size_t kReceives = 64;

// What reaches other hosts with the order that we need, the best first. Over RDMA devices it is our own FI_EP_MSG.
constexpr const char *kOverRdma = "vma;ofi_rxm";
constexpr const char *kOverTcp = "tcp;ofi_rxm";

// What we want of it: messages in order, by socket addresses, from this one.
ofi::InfoPtr make_hints(const char *provider, const ofi::Address &local) noexcept
{
    ofi::InfoPtr hints(ofi::allocate_info());
    if (!hints)
        return hints;
    hints->caps = FI_MSG | FI_SEND | FI_RECV;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->addr_format = local.sa.sa_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    hints->ep_attr->type = FI_EP_RDM;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->tx_attr->size = kSends;
    hints->rx_attr->size = kReceives;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->fabric_attr->prov_name = ::strdup(provider);
    if (hints->fabric_attr->prov_name == nullptr || !ofi::set_source(*hints, local))
        hints.reset();
    return hints;
}

// The first that isn't this provider's own way within the host.
const fi_info *beyond_the_host(const fi_info *list) noexcept
{
    for (const fi_info *info = list; info != nullptr; info = info->next) {
        const char *const fabric = info->fabric_attr->name;
        if (info->ep_attr->max_msg_size >= sizeof(NetworkBuffer::bytes) &&
            (fabric == nullptr || std::string_view(fabric) != ofi::kLocalName))
            return info;
    }
    return nullptr;
}

// nullptr: it isn't there, or not from this address.
fi_info *find_info(const char *provider, const ofi::Address &local) noexcept
{
    const ofi::LibfabricCalls *const libfabric = ofi::libfabric_calls();
    const ofi::InfoPtr hints = make_hints(provider, local);
    fi_info *list = nullptr;
    if (libfabric == nullptr || !hints ||
        libfabric->getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), nullptr, nullptr, 0, hints.get(), &list) !=
            0)
        return nullptr;
    const fi_info *const chosen = beyond_the_host(list);
    fi_info *const copy = chosen != nullptr ? libfabric->dupinfo(chosen) : nullptr;
    libfabric->freeinfo(list);
    return copy;
}

fi_info *choose(const ofi::Address &local) noexcept
{
    const char *const asked = ofi::param(ofi::Param::network);
    if (asked != nullptr && std::string_view(asked) != "auto")
        return std::string_view(asked) != "off" ? find_info(asked, local) : nullptr;
    fi_info *info = core::has_rdma_devices() ? find_info(kOverRdma, local) : nullptr;
    return info != nullptr ? info : find_info(kOverTcp, local);
}

bool random_number(std::uint64_t &number) noexcept
{
    do {
        if (::getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number))
            return false;
    } while (number == 0);
    return true;
}

} // namespace

bool reaches_other_hosts(const ofi::Address &source) noexcept
{
    fi_info *const info = choose(source);
    if (info != nullptr)
        ofi::libfabric_calls()->freeinfo(info);
    return info != nullptr;
}

std::unique_ptr<Network> Network::open(const ofi::Address &local, int &error) noexcept
{
    error = 0;
    fi_info *const info = choose(local);
    if (info == nullptr)
        return nullptr;
    std::unique_ptr<Network> network(new (std::nothrow) Network);
    if (!network) {
        ofi::libfabric_calls()->freeinfo(info);
        error = -FI_ENOMEM;
        return nullptr;
    }
    network->info_ = info;
    network->name_ = local;
    const bool numbered = random_number(network->id_);
    network->head_.magic = kNetworkMagic;
    network->head_.sender = network->id_;
    set_name(network->head_, local);
    if (!numbered)
        error = -FI_EIO;
    else if ((error = network->open_objects(*info)) == 0)
        error = network->make_buffers();
    if (error != 0)
        network.reset();
    return network;
}

Network::~Network()
{
    ep_.reset(); // and with it what it still has of our buffers
    av_.reset();
    cq_.reset();
    domain_.reset();
    fabric_.reset();
    if (info_ != nullptr)
        ofi::libfabric_calls()->freeinfo(info_);
}

const char *Network::provider() const noexcept
{
    return info_->fabric_attr->prov_name;
}

int Network::open_objects(fi_info &info) noexcept
{
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_cq *cq = nullptr;
    fid_av *av = nullptr;
    fid_ep *ep = nullptr;
    int error = ofi::libfabric_calls()->fabric(info.fabric_attr, &fabric, nullptr);
    if (error != 0)
        return error;
    fabric_.reset(fabric);
    if ((error = fi_domain(fabric, &info, &domain, nullptr)) != 0)
        return error;
    domain_.reset(domain);
    fi_cq_attr cq_attr{};
    cq_attr.size = 2 * (kSends + kReceives);
    cq_attr.format = FI_CQ_FORMAT_MSG;
    cq_attr.wait_obj = FI_WAIT_FD;
    if ((error = fi_cq_open(domain, &cq_attr, &cq, nullptr)) != 0)
        return error;
    cq_.reset(cq);
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    if ((error = fi_av_open(domain, &av_attr, &av, nullptr)) != 0)
        return error;
    av_.reset(av);
    if ((error = fi_endpoint(domain, &info, &ep, nullptr)) != 0)
        return error;
    ep_.reset(ep);
    if ((error = fi_ep_bind(ep, &cq->fid, FI_SEND | FI_RECV)) != 0 || (error = fi_ep_bind(ep, &av->fid, 0)) != 0 ||
        (error = fi_enable(ep)) != 0 || (error = open_wait_set()) != 0)
        return error;
    // It must be where peers look for it.
    ofi::Address got;
    std::size_t length = sizeof got.v6;
    if ((error = fi_getname(&ep->fid, &got.v6, &length)) != 0)
        return error;
    if (got.port() != name_.port())
        return -FI_EADDRINUSE;
    const bool listens = std::string_view(provider()).starts_with("tcp"); // itself
    return listens ? 0 : open_presence(name_, presence_);
}

int Network::open_wait_set() noexcept
{
    int fd = -1;
    if (const int error = fi_control(&cq_->fid, FI_GETWAIT, &fd))
        return error;
    if (const int error = alarm_.open())
        return error;
    wait_set_ = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
    return core::watch_fd(wait_set_.get(), fd) && core::watch_fd(wait_set_.get(), alarm_.fd()) ? 0 : -errno;
}

int Network::make_buffers() noexcept
{
    buffers_.reset(new (std::nothrow) NetworkBuffer[kSends + kReceives]);
    if (!buffers_)
        return -FI_ENOMEM;
    for (std::size_t i = 0; i < kSends; ++i)
        free_.push(buffers_[i]);
    for (std::size_t i = 0; i < kReceives; ++i)
        receive_into(buffers_[kSends + i]);
    return 0;
}

} // namespace vma::rdm
