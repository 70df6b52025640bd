// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/nic.hpp"

#include <algorithm>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <mutex>
#include <net/if.h>
#include <new>

#include "core/log.hpp"
#include "core/mutex.hpp"
#include "core/sysfs.hpp"

namespace vma::verbs {
namespace {

constexpr std::uint32_t kMostInline = 512; // bytes: more makes each entry of the send queue larger than it is worth
constexpr std::size_t kDefaultSize = 256;
constexpr std::size_t kMostSize = 4096;
constexpr std::uint32_t kMostSge = 30;
constexpr std::uint64_t kTxOpFlags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE;
constexpr std::uint64_t kDomainCaps = FI_LOCAL_COMM | FI_REMOTE_COMM;
constexpr std::uint64_t kTxCaps = FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE | FI_FENCE;
constexpr std::uint64_t kRxCaps = FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr int kMrMode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

// The process's: devices are opened once, and stay open.
core::Mutex g_mutex;
std::vector<std::unique_ptr<Nic>> g_nics; // protected by g_mutex

// Deletes what it holds with a function of the table.
template <typename Object> using Owned = std::unique_ptr<Object, int (*)(Object *)>;

// The device tells how much it takes only by taking it.
std::uint32_t find_max_inline(ibv_context *context, std::uint32_t sge)
{
    const Owned<ibv_pd> pd(table()->alloc_pd(context), table()->dealloc_pd);
    const Owned<ibv_cq> cq(table()->create_cq(context, 1, nullptr, nullptr, 0), table()->destroy_cq);
    if (!pd || !cq)
        return 0;
    for (std::uint32_t bytes = kMostInline; bytes >= 16; bytes /= 2) {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq.get();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {
            .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = sge, .max_recv_sge = sge, .max_inline_data = bytes};
        if (const Owned<ibv_qp> qp(table()->create_qp(pd.get(), &attr), table()->destroy_qp); qp)
            return std::min(attr.cap.max_inline_data, kMostInline);
    }
    return 0;
}

int query_port(ibv_context *context, std::uint8_t number, ibv_port_attr &port)
{
    port = {};
    if (const verbs_context *extended = __extension__ verbs_get_ctx_op(context, query_port))
        return extended->query_port(context, number, &port, sizeof port);
    return table()->query_port(context, number, reinterpret_cast<_compat_ibv_port_attr *>(&port));
}

fi_ep_attr endpoint_attr(const Nic &nic)
{
    fi_ep_attr ep = ofi::kMsgOffer.ep;
    ep.protocol = ofi::kVerbsProtocol;
    ep.max_msg_size = nic.port.max_msg_sz;
    ep.max_order_raw_size = ep.max_order_war_size = ep.max_order_waw_size = nic.port.max_msg_sz;
    return ep;
}

fi_domain_attr domain_attr(const Nic &nic)
{
    fi_domain_attr domain = ofi::kMsgOffer.domain;
    domain.mr_mode = kMrMode;
    domain.mr_key_size = sizeof(std::uint32_t);
    domain.cq_data_size = sizeof(std::uint32_t);
    domain.cq_cnt = static_cast<std::size_t>(nic.attr.max_cq);
    domain.ep_cnt = domain.tx_ctx_cnt = domain.rx_ctx_cnt = static_cast<std::size_t>(nic.attr.max_qp);
    domain.max_ep_srx_ctx = nic.attr.max_srq > 0 ? 1 : 0;
    domain.mr_iov_limit = 1;
    domain.mr_cnt = static_cast<std::size_t>(nic.attr.max_mr);
    domain.caps = kDomainCaps;
    return domain;
}

void fill_offer(Nic &nic)
{
    ofi::Offer &offer = nic.offer;
    offer = ofi::kMsgOffer;
    offer.fabric = kFabricName;
    offer.name = nic.name;
    offer.caps = kTxCaps | kRxCaps | kDomainCaps;
    offer.tx_caps = kTxCaps;
    offer.rx_caps = kRxCaps;
    offer.tx_op_flags = kTxOpFlags;
    offer.mode = FI_RX_CQ_DATA;
    offer.most_size = std::min<std::size_t>(static_cast<std::size_t>(std::max(nic.attr.max_qp_wr, 1)), kMostSize);
    offer.tx.caps = kTxCaps;
    offer.tx.inject_size = nic.max_inline;
    offer.tx.iov_limit = offer.rx.iov_limit = std::min<std::size_t>(nic.max_sge, ofi::kIovLimit);
    offer.tx.rma_iov_limit = 1;
    offer.tx.size = offer.rx.size = std::min(kDefaultSize, offer.most_size);
    offer.rx.caps = kRxCaps;
    offer.ep = endpoint_attr(nic);
    offer.domain = domain_attr(nic);
}

// A device without the query, as most are, paces and stamps nothing.
void query_extended(ibv_context *context, Nic &nic)
{
    ibv_device_attr_ex attr{};
    const verbs_context *extended = __extension__ verbs_get_ctx_op(context, query_device_ex);
    if (extended == nullptr || extended->query_device_ex(context, nullptr, &attr, sizeof attr) != 0)
        return;
    nic.clock_khz = attr.hca_core_clock;
    nic.clock_mask = attr.completion_timestamp_mask;
    if ((attr.packet_pacing_caps.supported_qpts & 1U << IBV_QPT_RC) == 0)
        return;
    nic.rate_min = attr.packet_pacing_caps.qp_rate_limit_min;
    nic.rate_max = attr.packet_pacing_caps.qp_rate_limit_max;
}

// With g_mutex held; nullptr where the device doesn't answer.
const Nic *nic_of(ibv_context *context, std::uint8_t port)
{
    const char *name = table()->get_device_name(context->device);
    for (const auto &known : g_nics) {
        if (std::strcmp(known->name, name) == 0)
            return known.get();
    }
    std::unique_ptr<Nic> nic(new (std::nothrow) Nic{});
    if (!nic || std::strlen(name) >= sizeof nic->name)
        return nullptr;
    std::strcpy(nic->name, name);
    if (table()->query_device(context, &nic->attr) != 0 || query_port(context, port, nic->port) != 0) {
        VMA_WARN(fabric, "RDMA device %s does not tell what it can do: it is not used", name);
        return nullptr;
    }
    nic->max_sge = std::min(static_cast<std::uint32_t>(std::max(nic->attr.max_sge, 1)), kMostSge);
    query_extended(context, *nic);
    nic->max_inline = find_max_inline(context, std::min<std::uint32_t>(nic->max_sge, ofi::kIovLimit));
    fill_offer(*nic);
    g_nics.push_back(std::move(nic));
    return g_nics.back().get();
}

// Binding an id to an address is what tells the device behind it.
void probe(rdma_event_channel *channel, const char *interface, const ofi::Address &address, std::vector<Place> &found)
{
    rdma_cm_id *raw = nullptr;
    if (table()->create_id(channel, &raw, nullptr, RDMA_PS_TCP) != 0)
        return;
    const Owned<rdma_cm_id> id(raw, table()->destroy_id);
    ofi::Address bound = address;
    bound.set_port(0);
    if (table()->bind_addr(raw, &bound.sa) != 0 || raw->verbs == nullptr)
        return;
    if (const Nic *nic = nic_of(raw->verbs, raw->port_num))
        found.push_back({nic, raw->port_num, bound, interface});
}

bool is_usable(const ifaddrs &item)
{
    if (item.ifa_addr == nullptr || (item.ifa_flags & IFF_UP) == 0)
        return false;
    if (item.ifa_addr->sa_family != AF_INET6)
        return item.ifa_addr->sa_family == AF_INET;
    // A link-local address needs a scope that its holders lose.
    return !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6 *>(item.ifa_addr)->sin6_addr);
}

void probe_all(rdma_event_channel *channel, std::vector<Place> &found)
{
    ifaddrs *list = nullptr;
    if (::getifaddrs(&list) != 0)
        return;
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs *item = list; item != nullptr; item = item->ifa_next) {
            ofi::Address address;
            if (is_usable(*item) && item->ifa_addr->sa_family == family &&
                address.assign(item->ifa_addr, sizeof(sockaddr_in6)))
                probe(channel, item->ifa_name, address, found);
        }
    }
}

} // namespace

bool may_have_devices() noexcept
{
    if (is_replaced())
        return table() != nullptr;
    return core::has_rdma_devices();
}

std::vector<Place> places() noexcept
{
    std::vector<Place> found;
    if (!may_have_devices() || table() == nullptr)
        return found;
    const std::lock_guard guard(g_mutex);
    rdma_event_channel *channel = table()->create_event_channel();
    if (channel == nullptr)
        return found;
    probe_all(channel, found);
    table()->destroy_event_channel(channel);
    return found;
}

const Nic *find_nic(const char *name) noexcept
{
    const std::lock_guard guard(g_mutex);
    for (const auto &known : g_nics) {
        if (std::strcmp(known->name, name) == 0)
            return known.get();
    }
    return nullptr;
}

} // namespace vma::verbs
