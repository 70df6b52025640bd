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

namespace {

void put_on_wire(const Device &from, std::span<std::uint8_t> frame, bool sums)
{
    World &w = world();
    Headers headers;
    if (sums && parse(frame, headers))
        write_checksums(frame, headers);
    if (is_lost()) {
        ++w.stats.lost;
        return;
    }
    for (const auto &device : w.devices) {
        if (device.get() != &from && reachable(from, *device))
            take_frame(*device, frame);
    }
    if (from.wire && from.up && !from.removed)
        from.wire->send(frame);
}

} // namespace

ibv_wc_status send_frame(Qp &qp, const SendWr &wr)
{
    const Device &from = nic(qp.context);
    const bool cuts = wr.opcode == IBV_WR_TSO;
    const std::size_t longest = cuts ? from.config.max_tso : from.config.max_frame;
    if ((!cuts && wr.length < kShortest) || wr.length > longest)
        return IBV_WC_LOC_LEN_ERR;
    std::vector<std::byte> data;
    bool from_dm = false;
    if (const ibv_wc_status own = gather(*of(qp.pd), wr, data, &from_dm); own != IBV_WC_SUCCESS)
        return own;
    const std::span bytes(reinterpret_cast<std::uint8_t *>(data.data()), data.size());
    const bool sums = (wr.flags & IBV_SEND_IP_CSUM) != 0;
    if (!cuts) {
        put_on_wire(from, bytes, sums);
        return IBV_WC_SUCCESS;
    }
    std::vector<std::vector<std::uint8_t>> frames;
    if (!cut(wr.tso_header, bytes, wr.tso_size, frames) || frames.front().size() > from.config.max_frame)
        return IBV_WC_LOC_LEN_ERR;
    world().stats.cut += frames.size();
    for (std::vector<std::uint8_t> &frame : frames)
        put_on_wire(from, frame, sums);
    return IBV_WC_SUCCESS;
}
void lose_frames(unsigned share)
{
    const std::lock_guard guard(world().mutex);
    world().frame_loss = share;
}

} // namespace vma::sim
