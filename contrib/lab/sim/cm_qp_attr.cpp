// SPDX-License-Identifier: BSD-2-Clause
// rdma_init_qp_attr() of the simulated connection manager: what a QP that the caller made itself is to be given for its
// next state, with the values that the kernel's CM gives for RoCE.
#include "contrib/lab/sim/cm.hpp"

#include <algorithm>

namespace vma::sim {
namespace {

bool has_request(const CmId &id)
{
    return id.state == CmState::requested || id.state == CmState::replying || id.state == CmState::responded ||
           id.state == CmState::connected;
}

int init(const CmId &id, ibv_qp_attr &attr, int &mask)
{
    attr.port_num = 1;
    attr.pkey_index = 0;
    attr.qp_access_flags = 0;
    // Only once the CM knows what is wanted; before, the user has to say it himself.
    if (has_request(id) || id.state == CmState::requesting) {
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (id.own.responder_resources != 0)
            attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    }
    mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    return 0;
}

std::uint8_t sgid_index(const CmId &id)
{
    const auto &gids = id.nic->gids;
    const auto found =
        std::find_if(gids.begin(), gids.end(), [&id](const ibv_gid &gid) { return same_ip(gid, id.source.ip); });
    return static_cast<std::uint8_t>(found - gids.begin());
}

int ready_to_receive(const CmId &id, ibv_qp_attr &attr, int &mask)
{
    if (!has_request(id) || id.peer == nullptr)
        return EINVAL;
    attr.ah_attr = {};
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = id.destination.ip;
    attr.ah_attr.grh.sgid_index = sgid_index(id);
    attr.ah_attr.grh.hop_limit = 64;
    attr.path_mtu = std::min(id.nic->config.mtu, id.peer->nic->config.mtu);
    attr.dest_qp_num = id.other.qp_num;
    attr.rq_psn = id.peer->psn;
    // The active side is bound by the answer; the passive one answers with what it is told itself.
    attr.max_dest_rd_atomic = id.passive ? id.own.responder_resources : id.other.initiator_depth;
    attr.min_rnr_timer = 0;
    mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
           IBV_QP_MIN_RNR_TIMER;
    return 0;
}

int ready_to_send(const CmId &id, ibv_qp_attr &attr, int &mask)
{
    if (!has_request(id) || id.peer == nullptr)
        return EINVAL;
    attr.sq_psn = id.psn;
    attr.timeout = id.ack_timeout;
    // How often to send again is the active side's choice for both; how often after "not ready", the receiver's.
    attr.retry_cnt = id.passive ? id.other.retry_count : id.own.retry_count;
    attr.rnr_retry = id.other.rnr_retry_count;
    attr.max_rd_atomic = id.passive ? id.own.initiator_depth : id.other.responder_resources;
    mask =
        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return 0;
}

} // namespace

int calls::init_qp_attr(rdma_cm_id *handle, ibv_qp_attr *attr, int *mask)
{
    const std::lock_guard guard(world().mutex);
    const CmId &id = *of(handle);
    if (id.nic == nullptr || id.state == CmState::removed)
        return failed(EINVAL);
    int error = EINVAL;
    if (attr->qp_state == IBV_QPS_INIT)
        error = init(id, *attr, *mask);
    else if (attr->qp_state == IBV_QPS_RTR)
        error = ready_to_receive(id, *attr, *mask);
    else if (attr->qp_state == IBV_QPS_RTS)
        error = ready_to_send(id, *attr, *mask);
    return error == 0 ? 0 : failed(error);
}

} // namespace vma::sim
