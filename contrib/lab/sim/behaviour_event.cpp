// SPDX-License-Identifier: BSD-2-Clause
// Behaviour of completion events, shared receive queues and async events.
#include "contrib/lab/sim/behaviour.hpp"

#include <fcntl.h>
#include <poll.h>

namespace vma::sim::behaviour {
namespace {

bool readable(int fd, int patience_ms)
{
    pollfd wanted{fd, POLLIN, 0};
    return ::poll(&wanted, 1, patience_ms) == 1;
}

bool write_once(Pair &pair, std::uint64_t wr_id)
{
    std::vector<ibv_sge> sges{pair.a.sge(0, 10)};
    ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, wr_id, sges, pair.b.at(0), pair.b.mr->rkey);
    return pair.send(pair.a, wr);
}

bool send_once(Pair &pair, std::uint64_t wr_id, unsigned flags)
{
    std::vector<ibv_sge> sges{pair.a.sge(0, 10)};
    ibv_send_wr wr = request(IBV_WR_SEND, wr_id, sges, flags);
    return pair.receive(pair.b, wr_id, {pair.b.sge(0, 10)}) && pair.send(pair.a, wr);
}

void one_event_for_one_arming(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    // Not armed: completions, and no event.
    EXPECT(write_once(pair, 1));
    EXPECT_EQ(pair.wait(pair.a).wr_id, 1);
    EXPECT(!readable(pair.a.channel->fd, 0));
    EXPECT_EQ(::ibv_req_notify_cq(pair.a.cq, 0), 0);
    EXPECT(write_once(pair, 2));
    EXPECT(write_once(pair, 3));
    EXPECT(readable(pair.a.channel->fd, kPatienceMs));
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    EXPECT_EQ(lab.verbs.get_cq_event(pair.a.channel, &cq, &context), 0);
    lab.verbs.ack_cq_events(cq, 1);
    EXPECT(cq == pair.a.cq);
    EXPECT(context == &pair);
    EXPECT_EQ(pair.wait(pair.a).wr_id, 2);
    EXPECT_EQ(pair.wait(pair.a).wr_id, 3);
    EXPECT(!readable(pair.a.channel->fd, 0));
}

// Who arms, and then polls until there is nothing, misses none: what comes after the last look raises an event.
void arming_and_looking_misses_nothing(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    EXPECT(write_once(pair, 1));
    EXPECT_EQ(::ibv_req_notify_cq(pair.a.cq, 0), 0);
    EXPECT_EQ(pair.wait(pair.a).wr_id, 1);
    EXPECT(pair.empty(pair.a));
    EXPECT(write_once(pair, 2));
    EXPECT(readable(pair.a.channel->fd, kPatienceMs));
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    EXPECT_EQ(lab.verbs.get_cq_event(pair.a.channel, &cq, &context), 0);
    lab.verbs.ack_cq_events(cq, 1);
    EXPECT_EQ(pair.wait(pair.a).wr_id, 2);
}

void only_solicited_ones_wake(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    EXPECT_EQ(::ibv_req_notify_cq(pair.b.cq, 1), 0);
    EXPECT(send_once(pair, 1, IBV_SEND_SIGNALED));
    EXPECT_EQ(pair.wait(pair.b).wr_id, 1);
    EXPECT(!readable(pair.b.channel->fd, 0));
    EXPECT(send_once(pair, 2, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
    EXPECT(readable(pair.b.channel->fd, kPatienceMs));
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    EXPECT_EQ(lab.verbs.get_cq_event(pair.b.channel, &cq, &context), 0);
    lab.verbs.ack_cq_events(cq, 1);
    EXPECT_EQ(pair.wait(pair.b).wr_id, 2);
}

void an_error_wakes_as_a_solicited_one(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    EXPECT(pair.receive(pair.b, 1, {pair.b.sge(0, 10)}));
    EXPECT_EQ(::ibv_req_notify_cq(pair.b.cq, 1), 0);
    EXPECT(pair.fail(pair.b));
    EXPECT(readable(pair.b.channel->fd, kPatienceMs));
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    EXPECT_EQ(lab.verbs.get_cq_event(pair.b.channel, &cq, &context), 0);
    lab.verbs.ack_cq_events(cq, 1);
    EXPECT_EQ(pair.wait(pair.b).status, IBV_WC_WR_FLUSH_ERR);
}

void a_nonblocking_channel_does_not_wait(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    const int fd = pair.a.channel->fd;
    EXPECT_EQ(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    EXPECT_EQ(lab.verbs.get_cq_event(pair.a.channel, &cq, &context), -1);
    EXPECT_EQ(errno, EAGAIN);
}

void receives_can_be_shared(Lab &lab)
{
    Pair pair(lab, {.shared_receives = true});
    EXPECT(pair);
    for (std::uint64_t i = 0; i < 2; ++i)
        EXPECT(pair.receive(pair.a, 50 + i, {pair.a.sge(1000 * (i + 1), 100)}));
    std::vector<ibv_sge> sges{pair.a.sge(0, 10)};
    ibv_send_wr wr = request(IBV_WR_SEND, 1, sges);
    EXPECT(pair.send(pair.a, wr));
    EXPECT_EQ(pair.wait(pair.b).wr_id, 50);
    EXPECT(pair.send(pair.b, wr));
    EXPECT_EQ(pair.wait(pair.b).opcode, IBV_WC_SEND);
    // a has its own send's completion and the receive's, in this order.
    EXPECT_EQ(pair.wait(pair.a).wr_id, 1);
    const ibv_wc got = pair.wait(pair.a);
    EXPECT_EQ(got.wr_id, 51);
    EXPECT_EQ(got.qp_num, pair.a.qp->qp_num);
    // A QP on a shared queue has none of its own.
    ibv_recv_wr receive{1, nullptr, nullptr, 0};
    ibv_recv_wr *bad = nullptr;
    EXPECT(::ibv_post_recv(pair.a.qp, &receive, &bad) != 0);
}

// The next async event that is none of the port's; it is acknowledged.
bool next_async(Lab &lab, ibv_context *context, ibv_async_event &event)
{
    while (lab.expect(readable(context->async_fd, kPatienceMs), __FILE__, __LINE__, "an async event")) {
        if (lab.verbs.get_async_event(context, &event) != 0)
            return false;
        lab.verbs.ack_async_event(&event);
        if (event.event_type != IBV_EVENT_GID_CHANGE && event.event_type != IBV_EVENT_COMM_EST)
            return true;
    }
    return false;
}

void a_shared_queue_tells_its_limit(Lab &lab)
{
    Pair pair(lab, {.shared_receives = true});
    EXPECT(pair);
    for (std::uint64_t i = 0; i < 3; ++i)
        EXPECT(pair.receive(pair.b, i, {pair.b.sge(0, 100)}));
    ibv_srq_attr limit{0, 0, 2};
    EXPECT_EQ(lab.verbs.modify_srq(pair.srq, &limit, IBV_SRQ_LIMIT), 0);
    std::vector<ibv_sge> sges{pair.a.sge(0, 10)};
    ibv_send_wr wr = request(IBV_WR_SEND, 1, sges);
    EXPECT(pair.send(pair.a, wr));
    EXPECT_EQ(pair.wait(pair.b).wr_id, 0);
    EXPECT(!readable(pair.b.id->verbs->async_fd, 0)); // 2 are left
    EXPECT(pair.send(pair.a, wr));
    ibv_async_event event{};
    EXPECT(next_async(lab, pair.b.id->verbs, event));
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT(event.element.srq == pair.srq);
}

void a_qp_says_that_it_takes_no_more(Lab &lab)
{
    Pair pair(lab, {.shared_receives = true});
    EXPECT(pair);
    EXPECT(pair.receive(pair.b, 1, {pair.b.sge(0, 100)}));
    EXPECT(pair.fail(pair.b));
    ibv_async_event event{};
    EXPECT(next_async(lab, pair.b.id->verbs, event));
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    EXPECT(event.element.qp == pair.b.qp);
    EXPECT(pair.empty(pair.b)); // the shared receive stays
}

constexpr Case kCases[] = {
    {"one_event_for_one_arming", one_event_for_one_arming},
    {"arming_and_looking_misses_nothing", arming_and_looking_misses_nothing},
    {"only_solicited_ones_wake", only_solicited_ones_wake},
    {"an_error_wakes_as_a_solicited_one", an_error_wakes_as_a_solicited_one},
    {"a_nonblocking_channel_does_not_wait", a_nonblocking_channel_does_not_wait},
    {"receives_can_be_shared", receives_can_be_shared},
    {"a_shared_queue_tells_its_limit", a_shared_queue_tells_its_limit},
    {"a_qp_says_that_it_takes_no_more", a_qp_says_that_it_takes_no_more,
     "it raises no LAST_WQE_REACHED for a QP that its user moved to ERR (Linux 6.1)"},
};

} // namespace

std::span<const Case> event_cases()
{
    return kCases;
}

} // namespace vma::sim::behaviour
