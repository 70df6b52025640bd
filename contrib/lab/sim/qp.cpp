// SPDX-License-Identifier: BSD-2-Clause
// Queue pairs and shared receive queues of the simulated NIC: made, asked, taken away.
#include "contrib/lab/sim/world.hpp"

#include <algorithm>

namespace vma::sim {
namespace {

bool caps_fit(const DeviceConfig &config, const ibv_qp_cap &cap)
{
    const auto wrs = static_cast<std::uint32_t>(config.max_qp_wr);
    const auto sges = static_cast<std::uint32_t>(config.max_sge);
    return cap.max_send_wr <= wrs && cap.max_recv_wr <= wrs && cap.max_send_sge <= sges && cap.max_recv_sge <= sges &&
           cap.max_inline_data <= config.max_inline;
}

int check(const ibv_pd &pd, const ibv_qp_init_attr &init)
{
    const Device &device = nic(pd.context);
    if (device.removed)
        return EIO;
    if (init.qp_type != IBV_QPT_RC && init.qp_type != IBV_QPT_UD && init.qp_type != IBV_QPT_RAW_PACKET)
        return EOPNOTSUPP;
    if (init.qp_type == IBV_QPT_RAW_PACKET && !device.config.raw_packets)
        return EOPNOTSUPP;
    if (init.send_cq == nullptr || init.recv_cq == nullptr || !caps_fit(device.config, init.cap))
        return EINVAL;
    if (init.send_cq->context != pd.context || init.recv_cq->context != pd.context)
        return EINVAL;
    const auto mine = [&device](const auto &each) { return &nic(each.second->context) == &device; };
    const auto live = std::count_if(world().qps.begin(), world().qps.end(), mine);
    return live >= device.config.max_qp ? ENOMEM : 0;
}

Qp *create(ibv_pd *pd, const ibv_qp_init_attr &init)
{
    if (const int error = check(*pd, init))
        return null_errno(error);
    World &w = world();
    auto *made = new Qp;
    static_cast<ibv_qp &>(*made) = {};
    made->context = pd->context;
    made->qp_context = init.qp_context;
    made->pd = pd;
    made->send_cq = init.send_cq;
    made->recv_cq = init.recv_cq;
    made->srq = init.srq;
    // 24 bits; numbers of the wire's QPs are not neighbours, so that nobody takes one for another.
    made->qp_num = w.next_qpn;
    w.next_qpn = (w.next_qpn + 7) & 0xffffff;
    made->handle = made->qp_num;
    made->state = IBV_QPS_RESET;
    made->qp_type = init.qp_type;
    made->cap = init.cap;
    made->all_signaled = init.sq_sig_all != 0;
    if (init.srq == nullptr) {
        made->own.max_wr = init.cap.max_recv_wr;
        made->own.max_sge = init.cap.max_recv_sge;
    } else {
        ++of(init.srq)->users;
        made->cap.max_recv_wr = made->cap.max_recv_sge = 0;
    }
    ++of(pd)->users;
    ++of(init.send_cq)->users;
    ++of(init.recv_cq)->users;
    w.qps[made->qp_num] = made;
    return made;
}

} // namespace

RecvQueue &receives(Qp &qp)
{
    return qp.srq != nullptr ? of(qp.srq)->queue : qp.own;
}

ibv_qp *create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *attr)
{
    const std::lock_guard guard(world().mutex);
    if (const int error = take_fault("create_qp_ex"))
        return null_errno(error);
    if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd->context != context)
        return null_errno(EINVAL);
    const auto flags = std::uint32_t{IBV_QP_INIT_ATTR_CREATE_FLAGS};
    const auto tso = std::uint32_t{IBV_QP_INIT_ATTR_MAX_TSO_HEADER};
    const std::uint32_t header = (attr->comp_mask & tso) != 0 ? attr->max_tso_header : 0;
    if ((attr->comp_mask & ~(flags | tso | IBV_QP_INIT_ATTR_PD)) != 0 ||
        ((attr->comp_mask & flags) != 0 && attr->create_flags != 0) ||
        (header != 0 && (attr->qp_type != IBV_QPT_RAW_PACKET || nic(context).config.max_tso == 0)))
        return null_errno(EOPNOTSUPP);
    ibv_qp_init_attr plain{attr->qp_context, attr->send_cq, attr->recv_cq,   attr->srq,
                           attr->cap,        attr->qp_type, attr->sq_sig_all};
    Qp *const made = create(attr->pd, plain);
    if (made != nullptr)
        made->max_tso_header = header;
    return made;
}

namespace calls {

ibv_qp *create_qp(ibv_pd *pd, ibv_qp_init_attr *init)
{
    const std::lock_guard guard(world().mutex);
    Qp *made = create(pd, *init);
    if (made != nullptr)
        init->cap = made->cap;
    return made;
}

int destroy_qp(ibv_qp *queue)
{
    World &w = world();
    std::unique_lock lock(w.mutex);
    Qp *qp = of(queue);
    if (qp->flows != 0)
        return EBUSY;
    forget_head(*qp);
    w.qps.erase(qp->qp_num);
    purge(qp->send_cq, *qp);
    purge(qp->recv_cq, *qp);
    forget_async(qp->context, qp);
    wait_acknowledged(lock, "ibv_destroy_qp", [qp, &w] { return !w.unacked.contains(qp); });
    --of(qp->pd)->users;
    --of(qp->send_cq)->users;
    --of(qp->recv_cq)->users;
    if (qp->srq != nullptr)
        --of(qp->srq)->users;
    delete qp;
    return 0;
}

int query_qp(ibv_qp *queue, ibv_qp_attr *attr, int, ibv_qp_init_attr *init)
{
    const std::lock_guard guard(world().mutex);
    const Qp &qp = *of(queue);
    if (nic(qp.context).removed)
        return EIO;
    *attr = qp.attr;
    attr->qp_state = attr->cur_qp_state = qp.state;
    attr->cap = qp.cap;
    attr->rate_limit = qp.rate;
    attr->sq_draining = qp.state == IBV_QPS_SQD && qp.head.wait != Head::none;
    *init = {qp.qp_context, qp.send_cq, qp.recv_cq, qp.srq, qp.cap, qp.qp_type, qp.all_signaled ? 1 : 0};
    return 0;
}

ibv_srq *create_srq(ibv_pd *pd, ibv_srq_init_attr *init)
{
    const std::lock_guard guard(world().mutex);
    const Device &device = nic(pd->context);
    if (device.removed)
        return null_errno(EIO);
    if (init->attr.max_wr == 0 || init->attr.max_wr > static_cast<std::uint32_t>(device.config.max_srq_wr) ||
        init->attr.max_sge > static_cast<std::uint32_t>(device.config.max_sge))
        return null_errno(EINVAL);
    auto *made = new Srq;
    static_cast<ibv_srq &>(*made) = {};
    made->context = pd->context;
    made->srq_context = init->srq_context;
    made->pd = pd;
    made->queue.max_wr = init->attr.max_wr;
    made->queue.max_sge = init->attr.max_sge;
    ++of(pd)->users;
    world().srqs.insert(made);
    return made;
}

int modify_srq(ibv_srq *queue, ibv_srq_attr *attr, int mask)
{
    const std::lock_guard guard(world().mutex);
    Srq &srq = *of(queue);
    if (nic(srq.context).removed)
        return EIO;
    if ((mask & ~IBV_SRQ_LIMIT) != 0) // its size stays, as the device has no IBV_DEVICE_SRQ_RESIZE
        return EINVAL;
    if ((mask & IBV_SRQ_LIMIT) != 0) {
        if (attr->srq_limit > srq.queue.max_wr)
            return EINVAL;
        srq.limit = attr->srq_limit;
        if (srq.queue.posted.size() < srq.limit) {
            srq.limit = 0;
            async_event(srq.context, IBV_EVENT_SRQ_LIMIT_REACHED, &srq);
        }
    }
    return 0;
}

int destroy_srq(ibv_srq *queue)
{
    World &w = world();
    std::unique_lock lock(w.mutex);
    Srq *srq = of(queue);
    if (srq->users != 0)
        return EBUSY;
    forget_async(srq->context, srq);
    wait_acknowledged(lock, "ibv_destroy_srq", [srq, &w] { return !w.unacked.contains(srq); });
    --of(srq->pd)->users;
    w.srqs.erase(srq);
    delete srq;
    return 0;
}

} // namespace calls
} // namespace vma::sim
