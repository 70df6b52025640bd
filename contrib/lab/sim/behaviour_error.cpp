// SPDX-License-Identifier: BSD-2-Clause
// Behaviour of a reliable connection when something is wrong: which status each side gets, what is flushed, what is
// tried again and how often.
#include "contrib/lab/sim/behaviour.hpp"

namespace vma::sim::behaviour {
namespace {

// The requester's own NIC refuses: by the specification a protection error, rxe calls it one of the operation.
bool own_fault(ibv_wc_status status)
{
    return status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_QP_OP_ERR;
}

void a_wrong_local_key(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    std::vector<ibv_sge> sges{pair.a.sge(0, 10)};
    sges[0].lkey ^= 0x5500;
    ibv_send_wr wr = request(IBV_WR_SEND, 4, sges, 0);
    EXPECT(pair.receive(pair.b, 1, {pair.b.sge(0, 10)}));
    EXPECT(pair.send(pair.a, wr));
    // Errors complete, signaled or not.
    const ibv_wc failed = pair.wait(pair.a);
    EXPECT(own_fault(failed.status));
    EXPECT_EQ(failed.wr_id, 4);
    EXPECT_EQ(pair.state(pair.a), IBV_QPS_ERR);
    EXPECT(pair.empty(pair.b));
}

void memory_beyond_the_region(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    std::vector<ibv_sge> sges{pair.a.sge(60000, 10000)};
    ibv_send_wr wr = request(IBV_WR_SEND, 4, sges);
    EXPECT(pair.receive(pair.b, 1, {pair.b.sge(0, 20000)}));
    EXPECT(pair.send(pair.a, wr));
    EXPECT(own_fault(pair.wait(pair.a).status));
}

void refused_rdma(Lab &lab, Pair &pair, ibv_wr_opcode opcode, std::uint64_t remote, std::uint32_t rkey)
{
    EXPECT(pair.receive(pair.a, 20, {pair.a.sge(0, 10)}));
    EXPECT(pair.receive(pair.b, 30, {pair.b.sge(0, 10)}));
    std::vector<ibv_sge> sges{pair.a.sge(0, 100)};
    ibv_send_wr first = rdma(opcode, 1, sges, remote, rkey, 0);
    ibv_send_wr second = rdma(IBV_WR_RDMA_WRITE, 2, sges, pair.b.at(0), pair.b.mr->rkey, 0);
    first.next = &second;
    EXPECT(pair.send(pair.a, first));
    const ibv_wc failed = pair.wait(pair.a);
    EXPECT_EQ(failed.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(failed.wr_id, 1);
    // All that is outstanding is flushed; between the two queues there is no order.
    bool seen[2] = {};
    for (int i = 0; i < 2; ++i) {
        const ibv_wc flushed = pair.wait(pair.a);
        EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
        EXPECT(flushed.wr_id == 2 || flushed.wr_id == 20);
        seen[flushed.wr_id == 20] = true;
    }
    EXPECT(seen[0] && seen[1]);
    EXPECT_EQ(pair.state(pair.a), IBV_QPS_ERR);
    const ibv_wc other = pair.wait(pair.b);
    EXPECT_EQ(other.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(other.wr_id, 30);
    EXPECT_EQ(pair.state(pair.b), IBV_QPS_ERR);
}

void a_wrong_remote_key(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    refused_rdma(lab, pair, IBV_WR_RDMA_WRITE, pair.b.at(0), pair.b.mr->rkey ^ 0x5500);
}

void a_write_beyond_the_region(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    refused_rdma(lab, pair, IBV_WR_RDMA_WRITE, pair.b.at(65536 - 99), pair.b.mr->rkey);
}

void a_read_beyond_the_region(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    refused_rdma(lab, pair, IBV_WR_RDMA_READ, pair.b.at(0) - 1, pair.b.mr->rkey);
}

// The key is right and so is the QP, but the region may not be written from outside.
void a_region_without_remote_write(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    ibv_mr *shy =
        lab.verbs.reg_mr(pair.a.pd, pair.b.memory.data(), 1000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    EXPECT(shy != nullptr);
    refused_rdma(lab, pair, IBV_WR_RDMA_WRITE, pair.b.at(0), shy->rkey);
    EXPECT_EQ(lab.verbs.dereg_mr(shy), 0);
}

void a_qp_without_remote_write(Lab &lab)
{
    Pair pair(lab, {.access = IBV_ACCESS_LOCAL_WRITE});
    EXPECT(pair);
    std::vector<ibv_sge> sges{pair.a.sge(0, 100)};
    ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, 1, sges, pair.b.at(0), pair.b.mr->rkey);
    EXPECT(pair.send(pair.a, wr));
    const ibv_wc failed = pair.wait(pair.a);
    EXPECT(failed.status == IBV_WC_REM_INV_REQ_ERR || failed.status == IBV_WC_REM_ACCESS_ERR);
}

void a_receive_that_is_too_small(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    EXPECT(pair.receive(pair.b, 1, {pair.b.sge(0, 99)}));
    EXPECT(pair.receive(pair.b, 2, {pair.b.sge(0, 99)}));
    std::vector<ibv_sge> sges{pair.a.sge(0, 100)};
    ibv_send_wr wr = request(IBV_WR_SEND, 5, sges);
    EXPECT(pair.send(pair.a, wr));
    // rxe finds that its receive is no good: another error than the specification's, on both sides.
    const ibv_wc_status told = pair.wait(pair.a).status;
    EXPECT(told == IBV_WC_REM_INV_REQ_ERR || told == IBV_WC_REM_OP_ERR);
    const ibv_wc spoilt = pair.wait(pair.b);
    EXPECT_EQ(spoilt.wr_id, 1);
    EXPECT(spoilt.status == IBV_WC_LOC_LEN_ERR || own_fault(spoilt.status));
    EXPECT_EQ(pair.wait(pair.b).status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(pair.state(pair.b), IBV_QPS_ERR);
}

void a_receive_with_a_wrong_key(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    std::vector<ibv_sge> wrong{pair.b.sge(0, 200)};
    wrong[0].lkey ^= 0x5500;
    EXPECT(pair.receive(pair.b, 1, wrong));
    std::vector<ibv_sge> sges{pair.a.sge(0, 100)};
    ibv_send_wr wr = request(IBV_WR_SEND, 5, sges);
    EXPECT(pair.send(pair.a, wr));
    EXPECT_EQ(pair.wait(pair.a).status, IBV_WC_REM_OP_ERR);
    EXPECT(own_fault(pair.wait(pair.b).status));
}

void a_late_receive_is_waited_for(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    std::vector<ibv_sge> sges{pair.a.sge(0, 100)};
    ibv_send_wr wr = request(IBV_WR_SEND, 5, sges);
    EXPECT(pair.send(pair.a, wr));
    EXPECT(pair.empty(pair.b));
    EXPECT(pair.receive(pair.b, 1, {pair.b.sge(0, 100)}));
    EXPECT_EQ(pair.wait(pair.b).status, IBV_WC_SUCCESS);
    EXPECT_EQ(pair.wait(pair.a).status, IBV_WC_SUCCESS);
}

void a_receive_that_never_comes(Lab &lab)
{
    Pair pair(lab, {.rnr_retry = 2});
    EXPECT(pair);
    std::vector<ibv_sge> sges{pair.a.sge(0, 100)};
    ibv_send_wr wr = request(IBV_WR_SEND, 5, sges);
    EXPECT(pair.send(pair.a, wr));
    EXPECT_EQ(pair.wait(pair.a).status, IBV_WC_RNR_RETRY_EXC_ERR);
    EXPECT_EQ(pair.state(pair.a), IBV_QPS_ERR);
    EXPECT_EQ(pair.state(pair.b), IBV_QPS_RTS);
}

void a_peer_that_is_gone(Lab &lab)
{
    Pair pair(lab, {.retry = 2, .ack_timeout = 10});
    EXPECT(pair);
    EXPECT(pair.fail(pair.b));
    std::vector<ibv_sge> sges{pair.a.sge(0, 100)};
    ibv_send_wr wr = request(IBV_WR_SEND, 5, sges);
    EXPECT(pair.send(pair.a, wr));
    EXPECT_EQ(pair.wait(pair.a).status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(pair.state(pair.a), IBV_QPS_ERR);
}

void the_error_state_flushes_in_order(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    std::vector<ibv_sge> sges{pair.a.sge(0, 100)};
    for (std::uint64_t i = 0; i < 3; ++i) {
        EXPECT(pair.receive(pair.a, 10 + i, {pair.a.sge(0, 1)}));
        ibv_send_wr wr = request(IBV_WR_SEND, i, sges, 0); // nobody receives it
        EXPECT(pair.send(pair.a, wr));
    }
    EXPECT(pair.fail(pair.a));
    std::uint64_t next_send = 0;
    std::uint64_t next_receive = 10;
    for (int i = 0; i < 6; ++i) {
        const ibv_wc flushed = pair.wait(pair.a);
        EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(flushed.wr_id, flushed.wr_id < 10 ? next_send++ : next_receive++);
    }
    EXPECT(pair.empty(pair.a));
}

void sends_in_the_error_state_are_flushed(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    EXPECT(pair.fail(pair.a));
    std::vector<ibv_sge> sges{pair.a.sge(0, 100)};
    ibv_send_wr wr = request(IBV_WR_SEND, 5, sges, 0);
    EXPECT(pair.send(pair.a, wr));
    const ibv_wc flushed = pair.wait(pair.a);
    EXPECT_EQ(flushed.wr_id, 5);
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
}

void receives_in_the_error_state_are_flushed(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    EXPECT(pair.fail(pair.a));
    EXPECT(pair.receive(pair.a, 6, {pair.a.sge(0, 100)}));
    const ibv_wc flushed = pair.wait(pair.a);
    EXPECT_EQ(flushed.wr_id, 6);
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
}

void wrong_steps_are_refused(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    // RTS is no way to INIT, and RESET needs all that INIT has.
    EXPECT_EQ(
        lab.verbs.modify_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        EINVAL);
    attr.qp_state = IBV_QPS_RESET;
    EXPECT_EQ(lab.verbs.modify_qp(pair.a.qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_INIT;
    EXPECT_EQ(lab.verbs.modify_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), EINVAL);
    attr.port_num = 9;
    EXPECT_EQ(
        lab.verbs.modify_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        EINVAL);
    EXPECT_EQ(pair.state(pair.a), IBV_QPS_RESET);
}

void what_is_used_is_not_destroyed(Lab &lab)
{
    Pair pair(lab, {.shared_receives = true});
    EXPECT(pair);
    EXPECT_EQ(lab.verbs.dealloc_pd(pair.a.pd), EBUSY);
    EXPECT_EQ(lab.verbs.destroy_cq(pair.a.cq), EBUSY);
    EXPECT_EQ(lab.verbs.destroy_srq(pair.srq), EBUSY);
    EXPECT_EQ(lab.verbs.destroy_comp_channel(pair.a.channel), EBUSY);
}

void limits_are_checked(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    ibv_device_attr device{};
    EXPECT_EQ(lab.verbs.query_device(pair.a.id->verbs, &device), 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = pair.a.cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {static_cast<std::uint32_t>(device.max_qp_wr) + 1, 1, 1, 1, 0};
    EXPECT(lab.verbs.create_qp(pair.a.pd, &init) == nullptr);
    EXPECT_EQ(errno, EINVAL);
    init.cap = {1, 1, static_cast<std::uint32_t>(device.max_sge) + 1, 1, 0};
    EXPECT(lab.verbs.create_qp(pair.a.pd, &init) == nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT(lab.verbs.create_cq(pair.a.id->verbs, device.max_cqe + 1, nullptr, nullptr, 0) == nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT(lab.verbs.create_cq(pair.a.id->verbs, 1, nullptr, nullptr, pair.a.id->verbs->num_comp_vectors) == nullptr);
    EXPECT_EQ(errno, EINVAL);
    // A region that is written from outside must be writable here.
    EXPECT(lab.verbs.reg_mr(pair.a.pd, pair.a.memory.data(), 10, IBV_ACCESS_REMOTE_WRITE) == nullptr);
    EXPECT_EQ(errno, EINVAL);
}

constexpr Case kCases[] = {
    {"a_wrong_local_key", a_wrong_local_key},
    {"memory_beyond_the_region", memory_beyond_the_region},
    {"a_wrong_remote_key", a_wrong_remote_key},
    {"a_write_beyond_the_region", a_write_beyond_the_region},
    {"a_read_beyond_the_region", a_read_beyond_the_region},
    {"a_region_without_remote_write", a_region_without_remote_write},
    {"a_qp_without_remote_write", a_qp_without_remote_write},
    {"a_receive_that_is_too_small", a_receive_that_is_too_small},
    {"a_receive_with_a_wrong_key", a_receive_with_a_wrong_key},
    {"a_late_receive_is_waited_for", a_late_receive_is_waited_for},
    {"a_receive_that_never_comes", a_receive_that_never_comes},
    {"a_peer_that_is_gone", a_peer_that_is_gone},
    {"the_error_state_flushes_in_order", the_error_state_flushes_in_order},
    {"sends_in_the_error_state_are_flushed", sends_in_the_error_state_are_flushed},
    {"receives_in_the_error_state_are_flushed", receives_in_the_error_state_are_flushed,
     "its post_recv does not tell the kernel: what comes after the flush stays"},
    {"wrong_steps_are_refused", wrong_steps_are_refused},
    {"what_is_used_is_not_destroyed", what_is_used_is_not_destroyed},
    {"limits_are_checked", limits_are_checked},
};

} // namespace

std::span<const Case> error_cases()
{
    return kCases;
}

} // namespace vma::sim::behaviour
