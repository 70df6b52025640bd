// SPDX-License-Identifier: BSD-2-Clause
// What posting checks and stores, and how requests become completions, for all kinds of queue pairs.
#include "contrib/lab/sim/world.hpp"

#include <algorithm>

namespace vma::sim {
namespace {

struct Opcode {
    ibv_wr_opcode wr;
    ibv_wc_opcode wc;
    bool datagram; // UD knows it, too
    bool inlines;
};

constexpr Opcode kOpcodes[] = {
    {IBV_WR_SEND, IBV_WC_SEND, true, true},
    {IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, true, true},
    {IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, false, true},
    {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, false, true},
    {IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, false, false},
    {IBV_WR_TSO, IBV_WC_TSO, false, false},
};

const Opcode *find(ibv_wr_opcode opcode)
{
    const auto *found = std::find_if(std::begin(kOpcodes), std::end(kOpcodes),
                                     [opcode](const Opcode &each) { return each.wr == opcode; });
    return found == std::end(kOpcodes) ? nullptr : found;
}

std::uint64_t length_of(const ibv_sge *list, int count)
{
    std::uint64_t length = 0;
    for (int i = 0; i < count; ++i)
        length += list[i].length;
    return length;
}

int check(const Qp &qp, const ibv_send_wr &wr)
{
    const Opcode *opcode = find(wr.opcode);
    const bool raw = qp.qp_type == IBV_QPT_RAW_PACKET;
    if (opcode == nullptr || (qp.qp_type == IBV_QPT_UD && !opcode->datagram))
        return EINVAL;
    if (wr.opcode == IBV_WR_TSO ? wr.tso.mss == 0 || wr.tso.hdr_sz == 0 || wr.tso.hdr_sz > qp.max_tso_header
                                : raw && wr.opcode != IBV_WR_SEND)
        return EINVAL; // of other kinds the longest header is 0 bytes
    if ((wr.send_flags & IBV_SEND_IP_CSUM) != 0 && !(raw && nic(qp.context).config.ip_csum))
        return EINVAL;
    if (qp.sends_posted - qp.sends_freed >= qp.cap.max_send_wr)
        return ENOMEM;
    if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > qp.cap.max_send_sge)
        return EINVAL;
    if ((wr.send_flags & IBV_SEND_INLINE) != 0 &&
        (!opcode->inlines || length_of(wr.sg_list, wr.num_sge) > qp.cap.max_inline_data))
        return EINVAL;
    return qp.qp_type == IBV_QPT_UD && wr.wr.ud.ah == nullptr ? EINVAL : 0;
}

void copy_inline(const ibv_send_wr &wr, std::vector<std::byte> &to)
{
    for (int i = 0; i < wr.num_sge; ++i) {
        const auto *from = reinterpret_cast<const std::byte *>(wr.sg_list[i].addr);
        to.insert(to.end(), from, from + wr.sg_list[i].length);
    }
}

SendWr taken(Qp &qp, const ibv_send_wr &wr)
{
    SendWr made;
    made.wr_id = wr.wr_id;
    made.place = qp.sends_posted++;
    made.opcode = wr.opcode;
    made.flags = wr.send_flags;
    made.signaled = qp.all_signaled || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
    made.imm = wr.imm_data;
    made.length = length_of(wr.sg_list, wr.num_sge);
    if (wr.opcode == IBV_WR_TSO) { // the header is copied at once, as if it were inline
        const auto *const header = static_cast<const std::uint8_t *>(wr.tso.hdr);
        made.tso_header.assign(header, header + wr.tso.hdr_sz);
        made.tso_size = wr.tso.mss;
    } else if (qp.qp_type == IBV_QPT_UD) {
        const ibv_global_route &route = of(wr.wr.ud.ah)->attr.grh;
        made.sgid = nic(qp.context).gids[route.sgid_index];
        made.dgid = route.dgid;
        made.remote_qpn = wr.wr.ud.remote_qpn;
        made.remote_qkey = wr.wr.ud.remote_qkey;
    } else {
        made.remote_addr = wr.wr.rdma.remote_addr;
        made.rkey = wr.wr.rdma.rkey;
    }
    if ((wr.send_flags & IBV_SEND_INLINE) != 0)
        copy_inline(wr, made.inlined);
    else
        made.sges.assign(wr.sg_list, wr.sg_list + wr.num_sge);
    Stats &stats = world().stats;
    ++stats.sends;
    stats.inlined += (wr.send_flags & IBV_SEND_INLINE) != 0;
    stats.signaled += made.signaled;
    return made;
}

int post(RecvQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad)
{
    for (; wr != nullptr; wr = wr->next) {
        *bad = wr; // means nothing if all goes well
        if (queue.used >= queue.max_wr)
            return ENOMEM;
        if (wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > queue.max_sge)
            return EINVAL;
        RecvWr made;
        made.wr_id = wr->wr_id;
        made.sges.assign(wr->sg_list, wr->sg_list + wr->num_sge);
        queue.posted.push_back(std::move(made));
        ++queue.used;
        ++world().stats.receives;
    }
    return 0;
}

void flush_receives(Qp &qp)
{
    while (!qp.own.posted.empty()) {
        const RecvWr wr = std::move(qp.own.posted.front());
        qp.own.posted.pop_front();
        ibv_wc wc{};
        wc.status = IBV_WC_WR_FLUSH_ERR;
        complete_receive(qp, wr, wc, false);
    }
}

} // namespace

int post_send(ibv_qp *queue, ibv_send_wr *wr, ibv_send_wr **bad)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    w.timers.work();
    Qp &qp = *of(queue);
    ++w.stats.doorbells;
    int error = std::exchange(qp.post_error, 0);
    if (error == 0 && (qp.state == IBV_QPS_RESET || qp.state == IBV_QPS_INIT || qp.state == IBV_QPS_RTR))
        error = EINVAL;
    std::uint64_t chain = 0;
    for (; wr != nullptr && error == 0; wr = wr->next, ++chain) {
        error = check(qp, *wr);
        if (error != 0)
            break;
        qp.sends.push_back(taken(qp, *wr));
    }
    if (error != 0)
        *bad = wr;
    w.stats.longest_chain = std::max(w.stats.longest_chain, chain);
    run(qp);
    return error;
}

int post_recv(ibv_qp *queue, ibv_recv_wr *wr, ibv_recv_wr **bad)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    w.timers.work();
    Qp &qp = *of(queue);
    *bad = wr;
    if (const int error = take_fault("post_recv"))
        return error;
    if (qp.srq != nullptr || qp.state == IBV_QPS_RESET)
        return EINVAL;
    const int error = post(qp.own, wr, bad);
    if (qp.state == IBV_QPS_ERR)
        flush_receives(qp);
    else
        run_waiting(qp.own);
    return error;
}

int post_srq_recv(ibv_srq *queue, ibv_recv_wr *wr, ibv_recv_wr **bad)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    w.timers.work();
    *bad = wr;
    if (const int error = take_fault("post_srq_recv"))
        return error;
    Srq &srq = *of(queue);
    const int error = post(srq.queue, wr, bad);
    run_waiting(srq.queue);
    return error;
}

void complete_send(Qp &qp, const SendWr &wr, ibv_wc_status status)
{
    if (status == IBV_WC_SUCCESS && !wr.signaled)
        return;
    Cqe entry;
    entry.qp = &qp;
    entry.send = true;
    entry.upto = wr.place + 1;
    entry.wc.wr_id = wr.wr_id;
    entry.wc.status = status;
    entry.wc.opcode = find(wr.opcode)->wc;
    entry.wc.byte_len = static_cast<std::uint32_t>(wr.length);
    entry.wc.qp_num = qp.qp_num;
    push(qp.send_cq, entry, false);
}

void complete_receive(Qp &qp, const RecvWr &wr, const ibv_wc &wc, bool solicited)
{
    Cqe entry;
    entry.qp = &qp;
    entry.srq = qp.srq == nullptr ? nullptr : of(qp.srq);
    entry.wc = wc;
    entry.wc.wr_id = wr.wr_id;
    entry.wc.qp_num = qp.qp_num;
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
        entry.wc.opcode = IBV_WC_RECV;
    push(qp.recv_cq, entry, solicited);
}

bool take_receive(Qp &qp, RecvWr &wr)
{
    RecvQueue &queue = receives(qp);
    if (queue.posted.empty())
        return false;
    wr = std::move(queue.posted.front());
    queue.posted.pop_front();
    if (qp.srq != nullptr) {
        Srq &srq = *of(qp.srq);
        if (srq.limit != 0 && queue.posted.size() < srq.limit) {
            srq.limit = 0; // told once, until it is set again
            async_event(srq.context, IBV_EVENT_SRQ_LIMIT_REACHED, &srq);
        }
    }
    return true;
}

ibv_wc_status scatter(const Pd &pd, const std::vector<ibv_sge> &sges, const std::byte *from, std::uint64_t length)
{
    for (const ibv_sge &sge : sges) {
        const std::uint64_t part = std::min<std::uint64_t>(length, sge.length);
        if (part == 0)
            continue;
        std::byte *to = local_bytes(pd, sge, IBV_ACCESS_LOCAL_WRITE);
        if (to == nullptr)
            return IBV_WC_LOC_PROT_ERR;
        std::memcpy(to, from, part);
        from += part;
        length -= part;
    }
    return length == 0 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

ibv_wc_status gather(const Pd &pd, const SendWr &wr, std::vector<std::byte> &bytes, bool *from_dm)
{
    if ((wr.flags & IBV_SEND_INLINE) != 0) {
        bytes = wr.inlined;
        return IBV_WC_SUCCESS;
    }
    bytes.clear();
    for (const ibv_sge &sge : wr.sges) {
        if (sge.length == 0)
            continue;
        const std::byte *from = local_bytes(pd, sge, 0, from_dm);
        if (from == nullptr)
            return IBV_WC_LOC_PROT_ERR;
        bytes.insert(bytes.end(), from, from + sge.length);
    }
    return IBV_WC_SUCCESS;
}

void to_error(Qp &qp)
{
    forget_head(qp);
    qp.state = IBV_QPS_ERR;
    while (!qp.sends.empty()) {
        const SendWr wr = std::move(qp.sends.front());
        qp.sends.pop_front();
        complete_send(qp, wr, IBV_WC_WR_FLUSH_ERR);
    }
    flush_receives(qp);
    if (qp.srq != nullptr && !std::exchange(qp.last_wqe_told, true))
        async_event(qp.context, IBV_EVENT_QP_LAST_WQE_REACHED, &qp);
}

} // namespace vma::sim
