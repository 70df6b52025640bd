// SPDX-License-Identifier: BSD-2-Clause
// The states of a queue pair: which step is allowed with which attributes, and what it does. The lists are those of the
// InfiniBand specification, chapter 10.3.1, as the Linux kernel checks them.
#include "contrib/lab/sim/world.hpp"

namespace vma::sim {
namespace {

struct Step {
    ibv_qp_type type;
    ibv_qp_state from;
    ibv_qp_state to;
    int required;
    int optional;
};

constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kLater = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
                       IBV_QP_PATH_MIG_STATE | IBV_QP_RATE_LIMIT;
constexpr int kDrained = kLater | IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_PKEY_INDEX;
constexpr int kDatagram = IBV_QP_CUR_STATE | IBV_QP_QKEY | IBV_QP_RATE_LIMIT;

constexpr Step kSteps[] = {
    {IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit | IBV_QP_ACCESS_FLAGS},
    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, kLater},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0, kLater},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, 0, kDrained},
    {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, 0, kLater},
    {IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_QKEY, 0},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit | IBV_QP_QKEY},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kDatagram},
    {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, kDatagram},
    {IBV_QPT_RAW_PACKET, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PORT, 0},
    {IBV_QPT_RAW_PACKET, IBV_QPS_INIT, IBV_QPS_RTR, 0, 0},
    {IBV_QPT_RAW_PACKET, IBV_QPS_RTR, IBV_QPS_RTS, 0, IBV_QP_RATE_LIMIT},
    {IBV_QPT_RAW_PACKET, IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_RATE_LIMIT},
};

bool allowed(const Qp &qp, ibv_qp_state to, int mask)
{
    if ((mask & IBV_QP_STATE) != 0 && (to == IBV_QPS_RESET || to == IBV_QPS_ERR))
        return (mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE)) == 0;
    for (const Step &step : kSteps) {
        if (step.type == qp.qp_type && step.from == qp.state && step.to == to)
            return (mask & step.required) == step.required &&
                   (mask & ~(step.required | step.optional | IBV_QP_STATE)) == 0;
    }
    return false;
}

bool rate_fits(const Device &device, std::uint32_t rate)
{
    return device.config.rate_max != 0 &&
           (rate == 0 || (rate >= device.config.rate_min && rate <= device.config.rate_max));
}

bool values_fit(const Qp &qp, const ibv_qp_attr &attr, int mask)
{
    const Device &device = nic(qp.context);
    const auto wanted = [mask](int bit) { return (mask & bit) != 0; };
    if (wanted(IBV_QP_CUR_STATE) && attr.cur_qp_state != qp.state)
        return false;
    if (wanted(IBV_QP_PORT) && attr.port_num != 1)
        return false;
    if (wanted(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0)
        return false;
    if (wanted(IBV_QP_PATH_MTU) && (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > device.config.mtu))
        return false;
    if (wanted(IBV_QP_AV) && (attr.ah_attr.is_global == 0 || attr.ah_attr.grh.sgid_index >= device.gids.size()))
        return false;
    if (wanted(IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > device.config.max_rd_atomic)
        return false;
    if (wanted(IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > device.config.max_rd_atomic)
        return false;
    if (wanted(IBV_QP_RATE_LIMIT) && !rate_fits(device, attr.rate_limit))
        return false;
    // 5, 3, 3 and 5 bits on the wire
    return !(wanted(IBV_QP_TIMEOUT) && attr.timeout > 31) && !(wanted(IBV_QP_RETRY_CNT) && attr.retry_cnt > 7) &&
           !(wanted(IBV_QP_RNR_RETRY) && attr.rnr_retry > 7) &&
           !(wanted(IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31);
}

void store(Qp &qp, const ibv_qp_attr &attr, int mask)
{
#define VMA_SIM_STORE(bit, field)                                                                                      \
    if ((mask & (bit)) != 0)                                                                                           \
        qp.attr.field = attr.field;
    VMA_SIM_STORE(IBV_QP_PKEY_INDEX, pkey_index)
    VMA_SIM_STORE(IBV_QP_PORT, port_num)
    VMA_SIM_STORE(IBV_QP_ACCESS_FLAGS, qp_access_flags)
    VMA_SIM_STORE(IBV_QP_QKEY, qkey)
    VMA_SIM_STORE(IBV_QP_AV, ah_attr)
    VMA_SIM_STORE(IBV_QP_PATH_MTU, path_mtu)
    VMA_SIM_STORE(IBV_QP_DEST_QPN, dest_qp_num)
    VMA_SIM_STORE(IBV_QP_RQ_PSN, rq_psn)
    VMA_SIM_STORE(IBV_QP_SQ_PSN, sq_psn)
    VMA_SIM_STORE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic)
    VMA_SIM_STORE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic)
    VMA_SIM_STORE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer)
    VMA_SIM_STORE(IBV_QP_TIMEOUT, timeout)
    VMA_SIM_STORE(IBV_QP_RETRY_CNT, retry_cnt)
    VMA_SIM_STORE(IBV_QP_RNR_RETRY, rnr_retry)
    VMA_SIM_STORE(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify)
#undef VMA_SIM_STORE
    // 24 bits travel.
    qp.attr.rq_psn &= 0xffffff;
    qp.attr.sq_psn &= 0xffffff;
    if ((mask & IBV_QP_RATE_LIMIT) != 0)
        qp.rate = attr.rate_limit;
}

void to_reset(Qp &qp)
{
    forget_head(qp);
    qp.sends.clear();
    qp.own.posted.clear();
    purge(qp.send_cq, qp);
    purge(qp.recv_cq, qp);
    qp.sends_posted = qp.sends_freed = 0;
    qp.own.used = 0;
    qp.attr = {};
    qp.rate = 0;
    qp.last_wqe_told = qp.established_told = false;
    qp.state = IBV_QPS_RESET;
}

void enter(Qp &qp, ibv_qp_state state)
{
    if (state == IBV_QPS_RESET)
        return to_reset(qp);
    if (state == IBV_QPS_ERR)
        return to_error(qp);
    const bool drains = state == IBV_QPS_SQD && qp.state != IBV_QPS_SQD;
    qp.state = state;
    if (drains && qp.head.wait == Head::none && qp.attr.en_sqd_async_notify != 0)
        async_event(qp.context, IBV_EVENT_SQ_DRAINED, &qp);
    run(qp);
}

} // namespace

int modify_qp_rate_limit(ibv_qp *queue, ibv_qp_rate_limit_attr *attr)
{
    const std::lock_guard guard(world().mutex);
    if (const int error = take_fault("modify_qp_rate_limit"))
        return error;
    Qp &qp = *of(queue);
    const Device &device = nic(qp.context);
    if (device.removed)
        return EIO;
    if (device.config.rate_max == 0)
        return EOPNOTSUPP;
    if (attr->comp_mask != 0 || !rate_fits(device, attr->rate_limit) ||
        (qp.state != IBV_QPS_RTR && qp.state != IBV_QPS_RTS))
        return EINVAL;
    if (attr->max_burst_sz != 0 && attr->typical_pkt_sz > attr->max_burst_sz)
        return EINVAL;
    qp.rate = attr->rate_limit;
    qp.burst = attr->max_burst_sz;
    return 0;
}

int calls::modify_qp(ibv_qp *queue, ibv_qp_attr *attr, int mask)
{
    const std::lock_guard guard(world().mutex);
    Qp &qp = *of(queue);
    if (nic(qp.context).removed)
        return EIO;
    const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : qp.state;
    if (!allowed(qp, to, mask) || !values_fit(qp, *attr, mask))
        return EINVAL;
    store(qp, *attr, mask);
    if ((mask & IBV_QP_STATE) != 0)
        enter(qp, to);
    return 0;
}

} // namespace vma::sim
