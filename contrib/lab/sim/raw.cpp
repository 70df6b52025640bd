// SPDX-License-Identifier: BSD-2-Clause
// RAW_PACKET queue pairs of the simulated NIC: frames out onto the wire, and frames in that a flow rule gives them.
#include "contrib/lab/sim/world.hpp"

#include <algorithm>

#include "contrib/lab/sim/frame.hpp"

namespace vma::sim {
namespace {

constexpr std::size_t kShortest = 14; // bytes: an Ethernet header

// Steele and Vigna's splitmix64: the same frames are lost in each run.
bool is_lost()
{
    World &w = world();
    if (w.frame_loss == 0)
        return false;
    std::uint64_t z = w.random += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % 10'000 < w.frame_loss;
}

// The rule that decides: the lowest number first, then the oldest.
const Flow *find_rule(const Device &device, const Headers &headers)
{
    const Flow *best = nullptr;
    for (const Flow *flow : world().flows) {
        if (flow->nic == &device && (best == nullptr || flow->priority < best->priority) && matches(*flow, headers))
            best = flow;
    }
    return best;
}

void receive(Qp &qp, std::span<const std::uint8_t> frame, const Headers &headers)
{
    Stats &stats = world().stats;
    RecvWr wr;
    const bool listens = qp.state == IBV_QPS_RTR || qp.state == IBV_QPS_RTS;
    if (!listens || !take_receive(qp, wr)) {
        ++stats.lost;
        return;
    }
    ibv_wc wc{};
    wc.byte_len = static_cast<std::uint32_t>(frame.size());
    wc.status = scatter(*of(qp.srq != nullptr ? qp.srq->pd : qp.pd), wr.sges,
                        reinterpret_cast<const std::byte *>(frame.data()), frame.size());
    if (nic(qp.context).config.ip_csum && headers.ip == Headers::Ip::v4 && checksums_right(frame, headers))
        wc.wc_flags = IBV_WC_IP_CSUM_OK;
    complete_receive(qp, wr, wc, false);
    if (wc.status != IBV_WC_SUCCESS)
        return to_error(qp);
    ++stats.messages;
    ++stats.packets;
    stats.bytes += frame.size();
}

} // namespace

bool take_frame(const Device &device, std::span<const std::uint8_t> frame)
{
    Headers headers;
    if (!device.up || device.removed || !parse(frame, headers))
        return false;
    const Flow *rule = find_rule(device, headers);
    if (rule == nullptr) {
        ++world().stats.unsteered;
        return false;
    }
    receive(*rule->qp, frame, headers);
    return true;
}

ibv_wc_status send_frame(Qp &qp, const SendWr &wr)
{
    World &w = world();
    const Device &from = nic(qp.context);
    if (wr.length < kShortest || wr.length > from.config.max_frame)
        return IBV_WC_LOC_LEN_ERR;
    std::vector<std::byte> data;
    bool from_dm = false;
    if (const ibv_wc_status own = gather(*of(qp.pd), wr, data, &from_dm); own != IBV_WC_SUCCESS)
        return own;
    const std::span frame(reinterpret_cast<std::uint8_t *>(data.data()), data.size());
    Headers headers;
    if ((wr.flags & IBV_SEND_IP_CSUM) != 0 && parse(frame, headers))
        write_checksums(frame, headers);
    if (is_lost()) {
        ++w.stats.lost;
        return IBV_WC_SUCCESS;
    }
    for (const auto &device : w.devices) {
        if (device.get() != &from && reachable(from, *device))
            take_frame(*device, frame);
    }
    if (from.wire && from.up && !from.removed)
        from.wire->send(frame);
    return IBV_WC_SUCCESS;
}

void lose_frames(unsigned share)
{
    const std::lock_guard guard(world().mutex);
    world().frame_loss = share;
}

} // namespace vma::sim
