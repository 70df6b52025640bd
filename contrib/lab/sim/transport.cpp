// SPDX-License-Identifier: BSD-2-Clause
// Reliable connections of the simulated NIC: works a send queue in order, message by message, and answers as the other
// side would. What can't go on now waits at the queue's head for its time, or for a receive.
#include "contrib/lab/sim/world.hpp"

#include <algorithm>

namespace vma::sim {
namespace {

using std::chrono::microseconds;

// What became of one attempt: done with a status, or waiting.
struct Outcome {
    ibv_wc_status status = IBV_WC_SUCCESS;
    Head::Wait wait = Head::none;
    Ns until{};
};

constexpr Ns kNever = Ns::max();

// InfiniBand specification, table 45: what the 5 bits of "min RNR timer" mean, in units of 10 us.
constexpr std::uint32_t kRnrTimers[] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                        48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                        2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
static_assert(std::size(kRnrTimers) == 32);

Ns rnr_delay(const Qp &responder)
{
    return microseconds(std::uint64_t{10} * kRnrTimers[responder.attr.min_rnr_timer]);
}

Ns ack_timeout(const Qp &qp)
{
    return Ns(std::uint64_t{4096} << qp.attr.timeout);
}

std::uint32_t packets(const Qp &qp, std::uint64_t length)
{
    const std::uint64_t mtu = mtu_bytes(qp.attr.path_mtu);
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (length + mtu - 1) / mtu));
}

bool connects(const Qp &from, const Qp &to)
{
    return from.attr.dest_qp_num == to.qp_num && device_of(from.attr.ah_attr.grh.dgid) == &nic(to.context);
}

// The other end, if a packet gets there now and it takes the packet. All else is silence to the sender.
Qp *responder(const Qp &qp)
{
    const auto found = world().qps.find(qp.attr.dest_qp_num);
    if (found == world().qps.end())
        return nullptr;
    Qp &peer = *found->second;
    const bool listens = peer.qp_type == IBV_QPT_RC &&
                         (peer.state == IBV_QPS_RTR || peer.state == IBV_QPS_RTS || peer.state == IBV_QPS_SQD);
    if (!listens || !connects(qp, peer) || !connects(peer, qp) || peer.attr.rq_psn != qp.attr.sq_psn)
        return nullptr;
    return reachable(nic(qp.context), nic(peer.context)) ? &peer : nullptr;
}

// Takes the message's place in the QP's rate: its packets leave one by one, the last at Head::due.
void start(Qp &qp, const SendWr &wr)
{
    Head &head = qp.head;
    head.started = true;
    head.retries = qp.attr.retry_cnt;
    head.rnr_retries = qp.attr.rnr_retry;
    head.due = world().timers.now();
    if (qp.rate == 0)
        return;
    const auto cost = [&qp](std::uint64_t bytes) { return Ns(bytes * 8'000'000 / qp.rate); }; // kbit/s
    const std::uint64_t mtu = mtu_bytes(qp.qp_type != IBV_QPT_RC ? nic(qp.context).config.mtu : qp.attr.path_mtu);
    const std::uint64_t last = wr.length == 0 ? 0 : (wr.length - 1) % mtu + 1;
    const Ns paid = std::max(qp.paid_until, head.due);
    head.due = std::max(head.due, paid + cost(wr.length - last) - cost(qp.burst));
    qp.paid_until = paid + cost(wr.length);
    world().stats.paced += head.due > world().timers.now();
}

Outcome lost(Qp &qp)
{
    ++world().stats.lost;
    return {.wait = Head::timeout, .until = qp.attr.timeout == 0 ? kNever : world().timers.now() + ack_timeout(qp)};
}

Outcome not_ready(Qp &qp, const Qp &peer)
{
    ++world().stats.rnr_naks;
    if (qp.head.rnr_retries == 0)
        return {.status = IBV_WC_RNR_RETRY_EXC_ERR};
    if (qp.head.rnr_retries < 7)
        --qp.head.rnr_retries;
    return {.wait = Head::rnr, .until = world().timers.now() + rnr_delay(peer)};
}

// The responder refuses: it breaks with this event, the requester with this status.
Outcome refuse(Qp &peer, ibv_event_type event, ibv_wc_status status)
{
    async_event(peer.context, event, &peer);
    to_error(peer);
    return {.status = status};
}

// The receive breaks, and the responder with it.
Outcome spoil(Qp &peer, const RecvWr &receive, ibv_wc_status own, ibv_wc_status status)
{
    ibv_wc wc{};
    wc.status = own;
    complete_receive(peer, receive, wc, false);
    to_error(peer);
    return {.status = status};
}

bool has_imm(const SendWr &wr)
{
    return wr.opcode == IBV_WR_SEND_WITH_IMM || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool receive_needed(const SendWr &wr)
{
    return wr.opcode == IBV_WR_SEND || has_imm(wr);
}

void received(Qp &peer, const SendWr &wr, const RecvWr &receive)
{
    ibv_wc wc{};
    wc.opcode = wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    wc.byte_len = static_cast<std::uint32_t>(wr.length);
    wc.src_qp = peer.attr.dest_qp_num;
    if (has_imm(wr)) {
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.imm_data = wr.imm;
    }
    complete_receive(peer, receive, wc, (wr.flags & IBV_SEND_SOLICITED) != 0);
}

// Keys of shared receives are the shared queue's, whatever the QP's PD.
const Pd &receive_pd(const Qp &qp)
{
    return *of(qp.srq != nullptr ? qp.srq->pd : qp.pd);
}

Outcome answer_send(Qp &peer, const SendWr &wr, const RecvWr &receive, const std::vector<std::byte> &bytes)
{
    std::uint64_t room = 0;
    for (const ibv_sge &sge : receive.sges)
        room += sge.length;
    if (wr.length > room)
        return spoil(peer, receive, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
    const ibv_wc_status put = scatter(receive_pd(peer), receive.sges, bytes.data(), bytes.size());
    return put == IBV_WC_SUCCESS ? Outcome{} : spoil(peer, receive, put, IBV_WC_REM_OP_ERR);
}

// Where RDMA goes to or comes from; a message of no bytes needs no key. Nullptr: `out` has the refusal.
std::byte *target(Qp &peer, const SendWr &wr, unsigned access, Outcome &out)
{
    static std::byte nothing{};
    if ((peer.attr.qp_access_flags & access) == 0) {
        out = refuse(peer, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
        return nullptr;
    }
    if (wr.length == 0)
        return &nothing;
    std::byte *at = remote_bytes(peer, wr.rkey, wr.remote_addr, wr.length, access);
    if (at == nullptr)
        out = refuse(peer, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
    return at;
}

Outcome answer_read(Qp &qp, Qp &peer, const SendWr &wr)
{
    Outcome out;
    if (peer.attr.max_dest_rd_atomic == 0)
        return refuse(peer, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
    if (const std::byte *from = target(peer, wr, IBV_ACCESS_REMOTE_READ, out))
        out.status = scatter(*of(qp.pd), wr.sges, from, wr.length);
    return out;
}

// As a device writes: past the threads, of which ThreadSanitizer would take it for one (it watches memcpy()
// everywhere).
__attribute__((no_sanitize("thread"))) void write_bytes(std::byte *to, const std::vector<std::byte> &bytes)
{
    volatile std::byte *const out = to;
    for (std::size_t i = 0; i < bytes.size(); ++i)
        out[i] = bytes[i];
}

Outcome answer(Qp &peer, const SendWr &wr, const std::vector<std::byte> &bytes, RecvWr &receive)
{
    Outcome out;
    const bool write = wr.opcode == IBV_WR_RDMA_WRITE || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (write) {
        std::byte *to = target(peer, wr, IBV_ACCESS_REMOTE_WRITE, out);
        if (to == nullptr)
            return out;
        write_bytes(to, bytes);
    } else {
        out = answer_send(peer, wr, receive, bytes);
    }
    if (out.status == IBV_WC_SUCCESS && receive_needed(wr))
        received(peer, wr, receive);
    return out;
}

// Before a byte leaves: what the requester's own NIC finds wrong.
ibv_wc_status prepare(Qp &qp, const SendWr &wr, std::vector<std::byte> &bytes, bool &from_dm)
{
    if (wr.length > nic(qp.context).config.max_message)
        return IBV_WC_LOC_LEN_ERR;
    if (wr.opcode != IBV_WR_RDMA_READ)
        return gather(*of(qp.pd), wr, bytes, &from_dm);
    if (qp.attr.max_rd_atomic == 0)
        return IBV_WC_LOC_QP_OP_ERR;
    for (const ibv_sge &sge : wr.sges) {
        if (sge.length != 0 && local_bytes(*of(qp.pd), sge, IBV_ACCESS_LOCAL_WRITE) == nullptr)
            return IBV_WC_LOC_PROT_ERR;
    }
    return IBV_WC_SUCCESS;
}

void count(Qp &qp, Qp &peer, const SendWr &wr, bool from_dm)
{
    const std::uint32_t sent = packets(qp, wr.length);
    qp.attr.sq_psn = (qp.attr.sq_psn + sent) & 0xffffff;
    peer.attr.rq_psn = (peer.attr.rq_psn + sent) & 0xffffff;
    Stats &stats = world().stats;
    ++stats.messages;
    stats.bytes += wr.length;
    stats.packets += sent;
    stats.from_dm += from_dm;
}

Outcome attempt(Qp &qp, const SendWr &wr)
{
    std::vector<std::byte> bytes;
    bool from_dm = false;
    if (const ibv_wc_status own = prepare(qp, wr, bytes, from_dm); own != IBV_WC_SUCCESS)
        return {.status = own};
    Qp *peer = responder(qp);
    if (peer == nullptr)
        return lost(qp);
    if (peer->state == IBV_QPS_RTR && !std::exchange(peer->established_told, true))
        async_event(peer->context, IBV_EVENT_COMM_EST, peer);
    RecvWr receive;
    if (receive_needed(wr)) {
        if (peer->forced_rnr != 0) {
            --peer->forced_rnr;
            return not_ready(qp, *peer);
        }
        if (!take_receive(*peer, receive))
            return not_ready(qp, *peer);
    }
    const Outcome out = wr.opcode == IBV_WR_RDMA_READ ? answer_read(qp, *peer, wr) : answer(*peer, wr, bytes, receive);
    if (out.status == IBV_WC_SUCCESS)
        count(qp, *peer, wr, from_dm);
    return out;
}

void wait_over(Qp &qp)
{
    Head &head = qp.head;
    world().rnr_waits -= head.wait == Head::rnr;
    head.wait = Head::none;
    world().timers.cancel(head.timer);
}

void finish(Qp &qp, const SendWr &wr, ibv_wc_status status)
{
    forget_head(qp);
    complete_send(qp, wr, status);
    if (status != IBV_WC_SUCCESS)
        to_error(qp);
    else if (qp.state == IBV_QPS_SQD && qp.attr.en_sqd_async_notify != 0)
        async_event(qp.context, IBV_EVENT_SQ_DRAINED, &qp);
}

void waited(Qp &qp)
{
    const bool timed_out = qp.head.wait == Head::timeout;
    qp.head.timer = {};
    wait_over(qp);
    if (timed_out && qp.head.retries-- == 0) {
        const SendWr wr = std::move(qp.sends.front());
        qp.sends.pop_front();
        finish(qp, wr, IBV_WC_RETRY_EXC_ERR);
        return;
    }
    run(qp);
}

void wait(Qp &qp, const Outcome &out)
{
    qp.head.wait = out.wait;
    world().rnr_waits += out.wait == Head::rnr;
    if (out.until != kNever)
        qp.head.timer = world().timers.at(out.until, [&qp] { waited(qp); });
}

Outcome step(Qp &qp, const SendWr &wr)
{
    if (!qp.head.started)
        start(qp, wr);
    if (qp.head.due > world().timers.now())
        return {.wait = Head::rate, .until = qp.head.due};
    if (qp.qp_type == IBV_QPT_UD)
        return {.status = send_datagram(qp, wr)};
    if (qp.qp_type == IBV_QPT_RAW_PACKET)
        return {.status = send_frame(qp, wr)};
    return attempt(qp, wr);
}

} // namespace

std::uint64_t mtu_bytes(ibv_mtu mtu)
{
    return std::uint64_t{128} << static_cast<unsigned>(mtu);
}

void forget_head(Qp &qp)
{
    wait_over(qp);
    qp.head = {};
}

void run(Qp &qp)
{
    while (!qp.sends.empty() && qp.head.wait == Head::none) {
        if (qp.state == IBV_QPS_ERR)
            return to_error(qp);
        // A queue that drains ends what it began, and begins nothing.
        if (qp.state != IBV_QPS_RTS && !(qp.state == IBV_QPS_SQD && qp.head.started))
            return;
        // Out of the queue meanwhile: one that is connected to itself is flushed when it refuses its own message.
        SendWr wr = std::move(qp.sends.front());
        qp.sends.pop_front();
        const Outcome out = step(qp, wr);
        if (out.wait != Head::none) {
            qp.sends.push_front(std::move(wr));
            wait(qp, out);
        } else {
            finish(qp, wr, out.status);
        }
    }
}

void run_waiting(const RecvQueue &posted)
{
    World &w = world();
    if (w.rnr_waits == 0)
        return;
    for (const auto &[number, qp] : w.qps) {
        if (qp->head.wait != Head::rnr || posted.posted.empty())
            continue;
        Qp *peer = responder(*qp);
        if (peer != nullptr && &receives(*peer) == &posted && peer->forced_rnr == 0) {
            wait_over(*qp);
            run(*qp);
        }
    }
}

} // namespace vma::sim
