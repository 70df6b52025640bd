// SPDX-License-Identifier: BSD-2-Clause
// Datagrams (UD) of the simulated NIC: sent once, with no word about what became of them. A receive gets 40 bytes of
// header before the data: a GRH, or for IPv4 its header in the last 20 of them, as RoCE v2 has it.
#include "contrib/lab/sim/world.hpp"

#include <arpa/inet.h>
#include <netinet/ip.h>

namespace vma::sim {
namespace {

constexpr std::size_t kHeader = 40;
constexpr std::uint8_t kUdp = 17;

bool is_ipv4(const ibv_gid &gid)
{
    constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(gid.raw, kMapped, sizeof(kMapped)) == 0;
}

void put_header(std::byte *to, const SendWr &wr)
{
    if (is_ipv4(wr.dgid)) {
        iphdr ip{};
        ip.version = 4;
        ip.ihl = 5;
        ip.ttl = 64;
        ip.protocol = kUdp;
        ip.tot_len = htons(static_cast<std::uint16_t>(sizeof(ip) + wr.length));
        std::memcpy(&ip.saddr, wr.sgid.raw + 12, sizeof(ip.saddr));
        std::memcpy(&ip.daddr, wr.dgid.raw + 12, sizeof(ip.daddr));
        std::memcpy(to + kHeader - sizeof(ip), &ip, sizeof(ip));
        return;
    }
    ibv_grh grh{};
    grh.version_tclass_flow = htonl(6U << 28);
    grh.paylen = htons(static_cast<std::uint16_t>(wr.length));
    grh.next_hdr = kUdp;
    grh.hop_limit = 64;
    grh.sgid = wr.sgid;
    grh.dgid = wr.dgid;
    std::memcpy(to, &grh, sizeof(grh));
}

// Who takes it, or nullptr.
Qp *receiver(const Qp &from, const SendWr &wr)
{
    const Device *device = device_of(wr.dgid);
    const auto found = world().qps.find(wr.remote_qpn);
    if (device == nullptr || found == world().qps.end() || !reachable(nic(from.context), *device))
        return nullptr;
    Qp &to = *found->second;
    // The highest bit of a key says: mine.
    const std::uint32_t key = (wr.remote_qkey & 0x80000000U) != 0 ? from.attr.qkey : wr.remote_qkey;
    const bool takes = to.qp_type == IBV_QPT_UD && &nic(to.context) == device && to.attr.qkey == key &&
                       (to.state == IBV_QPS_RTR || to.state == IBV_QPS_RTS || to.state == IBV_QPS_SQD);
    return takes ? &to : nullptr;
}

} // namespace

ibv_wc_status send_datagram(Qp &qp, const SendWr &wr)
{
    World &w = world();
    if (wr.length > mtu_bytes(nic(qp.context).config.mtu))
        return IBV_WC_LOC_LEN_ERR;
    std::vector<std::byte> data;
    bool from_dm = false;
    if (const ibv_wc_status own = gather(*of(qp.pd), wr, data, &from_dm); own != IBV_WC_SUCCESS)
        return own;
    Qp *to = receiver(qp, wr);
    RecvWr receive;
    if (to == nullptr || !take_receive(*to, receive)) {
        ++w.stats.lost;
        return IBV_WC_SUCCESS;
    }
    std::vector<std::byte> whole(kHeader);
    put_header(whole.data(), wr);
    whole.insert(whole.end(), data.begin(), data.end());
    ibv_wc wc{};
    wc.status = scatter(*of(to->srq != nullptr ? to->srq->pd : to->pd), receive.sges, whole.data(), whole.size());
    wc.byte_len = static_cast<std::uint32_t>(whole.size());
    wc.src_qp = qp.qp_num;
    wc.wc_flags = IBV_WC_GRH;
    if (wr.opcode == IBV_WR_SEND_WITH_IMM) {
        wc.wc_flags |= IBV_WC_WITH_IMM;
        wc.imm_data = wr.imm;
    }
    complete_receive(*to, receive, wc, (wr.flags & IBV_SEND_SOLICITED) != 0);
    if (wc.status != IBV_WC_SUCCESS)
        to_error(*to);
    ++w.stats.messages;
    ++w.stats.packets;
    w.stats.bytes += wr.length;
    w.stats.from_dm += from_dm;
    return IBV_WC_SUCCESS;
}

} // namespace vma::sim
