// SPDX-License-Identifier: BSD-2-Clause
// Faults that tests order from the simulated NIC, devices that go, device memory, flow rules, and the connection
// manager without an answer.
#include "contrib/lab/sim/test/wire.hpp"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <thread>

using namespace vma::sim;
using namespace vma::sim::test;

namespace {

void a_completion_gets_lost(void **)
{
    Wire wire;
    drop_completion(wire.a().qp->qp_num);
    wire.write(1, 10);
    wire.write(2, 10);
    assert_int_equal(wire.only(wire.a()).wr_id, 2);
    assert_int_equal(stats().dropped, 1);
}

void a_qp_breaks(void **)
{
    Wire wire;
    wire.receive(7);
    break_qp(wire.b().qp->qp_num);
    const ibv_async_event event = wire.async(wire.b());
    assert_int_equal(event.event_type, IBV_EVENT_QP_FATAL);
    assert_ptr_equal(event.element.qp, wire.b().qp);
    assert_int_equal(wire.only(wire.b()).status, IBV_WC_WR_FLUSH_ERR);
}

void a_post_fails(void **)
{
    Wire wire;
    fail_post(wire.a().qp->qp_num, ENOMEM);
    std::vector<ibv_sge> sges{wire.a().sge(0, 1)};
    ibv_send_wr wr = behaviour::request(IBV_WR_SEND, 1, sges);
    ibv_send_wr *bad = nullptr;
    assert_int_equal(::ibv_post_send(wire.a().qp, &wr, &bad), ENOMEM);
    assert_ptr_equal(bad, &wr);
    wire.write(2, 1);
    assert_int_equal(wire.only(wire.a()).wr_id, 2);
}

void calls_fail_as_ordered(void **)
{
    Wire wire;
    assert_false(fail_call("no_such_function", 1, ENOMEM));
    assert_true(fail_call("alloc_pd", 2, EMFILE));
    ibv_pd *first = table()->alloc_pd(wire.a().id->verbs);
    assert_non_null(first);
    assert_null(table()->alloc_pd(wire.a().id->verbs));
    assert_int_equal(errno, EMFILE);
    assert_int_equal(table()->dealloc_pd(first), 0);
    assert_true(fail_call("modify_qp", 1, EAGAIN));
    ibv_qp_attr attr{};
    assert_int_equal(table()->modify_qp(wire.a().qp, &attr, 0), EAGAIN); // the errno is the result
    assert_true(fail_call("disconnect", 1, EPERM));
    assert_int_equal(table()->disconnect(wire.a().id), -1); // and is in errno with librdmacm
    assert_int_equal(errno, EPERM);
    assert_true(fail_call("req_notify_cq", 1, ENOMEM));
    assert_int_equal(::ibv_req_notify_cq(wire.a().cq, 0), ENOMEM);
    assert_int_equal(::ibv_req_notify_cq(wire.a().cq, 0), 0);
}

void posts_are_counted(void **)
{
    Wire wire;
    std::vector<ibv_sge> sges{wire.a().sge(0, 10)};
    ibv_send_wr chain[3];
    for (int i = 0; i < 3; ++i) {
        chain[i] = behaviour::rdma(IBV_WR_RDMA_WRITE, 1, sges, wire.b().at(0), wire.b().mr->rkey,
                                   i == 2 ? unsigned{IBV_SEND_SIGNALED} : unsigned{IBV_SEND_INLINE});
        chain[i].next = i == 2 ? nullptr : &chain[i + 1];
    }
    assert_true(wire.pair->send(wire.a(), chain[0]));
    wire.write(1, 10);
    const Stats got = stats();
    assert_int_equal(got.doorbells, 2);
    assert_int_equal(got.sends, 4);
    assert_int_equal(got.longest_chain, 3);
    assert_int_equal(got.inlined, 2);
    assert_int_equal(got.signaled, 2);
    assert_int_equal(got.messages, 4);
    assert_int_equal(got.bytes, 40);
    assert_int_equal(got.completions, 2);
    assert_int_equal(got.live.qps, 2);
    assert_int_equal(got.live.ids, 3);
}

void an_overrun(void **)
{
    Wire wire({.cqe = 2});
    for (std::uint64_t i = 0; i < 3; ++i)
        wire.write(i, 10);
    const ibv_async_event event = wire.async(wire.a());
    assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
    assert_ptr_equal(event.element.cq, wire.a().cq);
    assert_int_equal(stats().dropped, 1);
}

void ports_go_down_and_up(void **)
{
    Wire wire({.ack_timeout = 14});
    port_down(1);
    assert_int_equal(wire.async(wire.b()).event_type, IBV_EVENT_PORT_ERR);
    ibv_port_attr port{};
    verbs_context *context = verbs_get_ctx(wire.b().id->verbs);
    assert_int_equal(context->query_port(wire.b().id->verbs, 1, &port, sizeof(port)), 0);
    assert_int_equal(port.state, IBV_PORT_DOWN);
    wire.write(1, 10);
    assert_true(wire.pair->empty(wire.a()));
    port_up(1);
    assert_int_equal(wire.async(wire.b()).event_type, IBV_EVENT_PORT_ACTIVE);
    advance(milliseconds(68));
    assert_int_equal(wire.only(wire.a()).status, IBV_WC_SUCCESS);
}

void a_device_is_pulled_out(void **)
{
    Wire wire({.retry = 1, .ack_timeout = 14});
    wire.receive(1);
    remove_device(1);
    assert_int_equal(wire.async(wire.b()).event_type, IBV_EVENT_DEVICE_FATAL);
    assert_int_equal(wire.only(wire.b()).status, IBV_WC_WR_FLUSH_ERR);
    // The listener is bound to it, too.
    for (int i = 0; i < 2; ++i)
        assert_non_null(wire.pair->manager.wait(RDMA_CM_EVENT_DEVICE_REMOVAL));
    assert_true(wire.pair->manager.quiet());
    assert_null(table()->alloc_pd(wire.b().id->verbs));
    assert_int_equal(errno, EIO);
    int count = 0;
    table()->free_device_list(table()->get_device_list(&count));
    assert_int_equal(count, 1);
    wire.write(1, 10);
    advance(seconds(1));
    assert_int_equal(wire.only(wire.a()).status, IBV_WC_RETRY_EXC_ERR);
}

void device_memory_is_a_source(void **)
{
    Wire wire;
    ibv_context *context = wire.a().id->verbs;
    ibv_device_attr_ex device{};
    assert_int_equal(verbs_get_ctx(context)->query_device_ex(context, nullptr, &device, sizeof(device)), 0);
    ibv_alloc_dm_attr attr{};
    attr.length = device.max_dm_size - 100;
    ibv_dm *dm = ::ibv_alloc_dm(context, &attr);
    assert_non_null(dm);
    attr.length = 101;
    assert_null(::ibv_alloc_dm(context, &attr));
    assert_int_equal(errno, ENOMEM);
    const char text[] = "kept on the device";
    assert_int_equal(::ibv_memcpy_to_dm(dm, 1000, text, sizeof(text)), 0);
    assert_int_not_equal(::ibv_memcpy_to_dm(dm, device.max_dm_size - 100, text, 1), 0);
    assert_null(::ibv_reg_dm_mr(wire.a().pd, dm, 900, 1000, IBV_ACCESS_LOCAL_WRITE));
    assert_int_equal(errno, EINVAL);
    ibv_mr *mr = ::ibv_reg_dm_mr(wire.a().pd, dm, 900, 1000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
    assert_non_null(mr);
    assert_int_equal(::ibv_free_dm(dm), EBUSY);
    std::vector<ibv_sge> sges{{100, sizeof(text), mr->lkey}}; // offset in the region
    ibv_send_wr wr = behaviour::rdma(IBV_WR_RDMA_WRITE, 1, sges, wire.b().at(0), wire.b().mr->rkey);
    assert_true(wire.pair->send(wire.a(), wr));
    assert_int_equal(wire.only(wire.a()).status, IBV_WC_SUCCESS);
    assert_memory_equal(wire.b().memory.data(), text, sizeof(text));
    assert_int_equal(stats().from_dm, 1);
    assert_int_equal(table()->dereg_mr(mr), 0);
    assert_int_equal(::ibv_free_dm(dm), 0);
    attr.length = device.max_dm_size;
    dm = ::ibv_alloc_dm(context, &attr);
    assert_non_null(dm);
    assert_int_equal(::ibv_free_dm(dm), 0);
}

void flow_rules_are_kept(void **)
{
    Wire wire;
    ibv_context *context = wire.a().id->verbs;
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = wire.a().cq;
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_RAW_PACKET;
    ibv_qp *qp = table()->create_qp(wire.a().pd, &init);
    assert_non_null(qp);
    struct {
        ibv_flow_attr attr;
        ibv_flow_spec_eth eth;
    } rule{};
    rule.attr.size = sizeof(rule);
    rule.attr.num_of_specs = 2; // there is one
    rule.attr.port = 1;
    rule.eth.type = IBV_FLOW_SPEC_ETH;
    rule.eth.size = sizeof(rule.eth);
    rule.eth.val.ether_type = 0x0008;
    assert_null(::ibv_create_flow(qp, &rule.attr));
    assert_int_equal(errno, EINVAL);
    rule.attr.num_of_specs = 1;
    ibv_flow *flow = ::ibv_create_flow(qp, &rule.attr);
    assert_non_null(flow);
    assert_ptr_equal(flow->context, context);
    const auto kept = flows(0);
    assert_int_equal(kept.size(), 1);
    assert_int_equal(kept[0].size(), sizeof(rule));
    assert_memory_equal(kept[0].data(), &rule, sizeof(rule));
    assert_int_equal(flows(1).size(), 0);
    assert_int_equal(table()->destroy_qp(qp), EBUSY);
    assert_int_equal(::ibv_destroy_flow(flow), 0);
    assert_int_equal(flows(0).size(), 0);
    assert_int_equal(table()->destroy_qp(qp), 0);
}

// One more active id, up to and with resolve_route().
rdma_cm_id *routed(Wire &wire, const char *to, std::uint16_t port)
{
    rdma_cm_id *id = wire.pair->manager.create();
    sockaddr_storage from = behaviour::address_of("10.0.0.1");
    sockaddr_storage there = behaviour::address_of(to, port);
    assert_int_equal(
        table()->resolve_addr(id, reinterpret_cast<sockaddr *>(&from), reinterpret_cast<sockaddr *>(&there), 500), 0);
    if (wire.pair->manager.quiet())
        return id;
    assert_non_null(wire.pair->manager.wait(RDMA_CM_EVENT_ADDR_RESOLVED));
    assert_int_equal(table()->resolve_route(id, 500), 0);
    return id;
}

void an_address_that_nobody_has(void **)
{
    Wire wire;
    rdma_cm_id *id = routed(wire, "10.0.0.99", 1);
    advance(milliseconds(499));
    assert_true(wire.pair->manager.quiet());
    advance(milliseconds(1));
    const rdma_cm_event *event = wire.pair->manager.wait(RDMA_CM_EVENT_ADDR_ERROR);
    assert_non_null(event);
    assert_ptr_equal(event->id, id);
    assert_int_equal(event->status, -ETIMEDOUT);
}

void a_route_that_fails(void **)
{
    Wire wire;
    fail_route("10.0.0.2", -ENETUNREACH);
    routed(wire, "10.0.0.2", 1);
    const rdma_cm_event *event = wire.pair->manager.wait(RDMA_CM_EVENT_ROUTE_ERROR);
    assert_non_null(event);
    assert_int_equal(event->status, -ENETUNREACH);
}

void a_request_without_an_answer(void **)
{
    Wire wire;
    rdma_cm_id *id = routed(wire, "10.0.0.2", 1);
    assert_non_null(wire.pair->manager.wait(RDMA_CM_EVENT_ROUTE_RESOLVED));
    cut(0, 1);
    rdma_conn_param param{};
    assert_int_equal(table()->connect(id, &param), 0);
    advance(seconds(59));
    assert_true(wire.pair->manager.quiet());
    advance(seconds(1));
    const rdma_cm_event *event = wire.pair->manager.wait(RDMA_CM_EVENT_UNREACHABLE);
    assert_non_null(event);
    assert_int_equal(event->status, -ETIMEDOUT);
}

void a_request_is_repeated(void **)
{
    Wire wire;
    rdma_cm_id *id = routed(wire, "10.0.0.2", 1);
    assert_non_null(wire.pair->manager.wait(RDMA_CM_EVENT_ROUTE_RESOLVED));
    cut(0, 1);
    rdma_conn_param param{};
    assert_int_equal(table()->connect(id, &param), 0);
    join(0, 1);
    advance(seconds(5));
    const rdma_cm_event *event = wire.pair->manager.wait(RDMA_CM_EVENT_REJECTED);
    assert_non_null(event);
    assert_int_equal(event->status, 8); // nobody listens there
}

void the_end_of_a_connection_in_time(void **)
{
    Wire wire;
    cut(0, 1);
    assert_int_equal(table()->disconnect(wire.a().id), 0);
    advance(seconds(60));
    const rdma_cm_event *event = wire.pair->manager.wait(RDMA_CM_EVENT_DISCONNECTED);
    assert_non_null(event);
    assert_ptr_equal(event->id, wire.a().id);
    assert_int_equal(event->status, -ETIMEDOUT);
    advance(milliseconds(3999));
    assert_true(wire.pair->manager.quiet());
    advance(milliseconds(1));
    assert_non_null(wire.pair->manager.wait(RDMA_CM_EVENT_TIMEWAIT_EXIT));
}

// With the real clock, what is due wakes a waiter by itself.
void the_real_clock_wakes(void **)
{
    Config config = two_devices();
    config.clock = Clock::real;
    Wire wire({.retry = 0, .ack_timeout = 8}, config); // 1 ms
    cut(0, 1);
    assert_int_equal(::ibv_req_notify_cq(wire.a().cq, 0), 0);
    wire.write(1, 10);
    pollfd readable{wire.a().channel->fd, POLLIN, 0};
    assert_int_equal(::poll(&readable, 1, behaviour::kPatienceMs), 1);
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    assert_int_equal(table()->get_cq_event(wire.a().channel, &cq, &context), 0);
    table()->ack_cq_events(cq, 1);
    assert_int_equal(wire.only(wire.a()).status, IBV_WC_RETRY_EXC_ERR);
}

// Two threads send to each other; each waits by events only.
void threads_meet(void **)
{
    constexpr std::uint64_t kRounds = 2000;
    Config config = two_devices();
    config.clock = Clock::real;
    Wire wire({}, config);
    const auto side = [](End &end, bool first) {
        std::uint64_t received = 0;
        std::uint64_t wrong = 0;
        ibv_sge sge = end.sge(0, 8);
        ibv_send_wr send{};
        send.sg_list = &sge;
        send.num_sge = 1;
        send.opcode = IBV_WR_SEND;
        send.send_flags = IBV_SEND_SIGNALED;
        ibv_sge room = end.sge(64, 8);
        ibv_recv_wr receive{0, nullptr, &room, 1};
        ibv_send_wr *bad_send = nullptr;
        ibv_recv_wr *bad_receive = nullptr;
        wrong += ::ibv_post_recv(end.qp, &receive, &bad_receive) != 0;
        if (first)
            wrong += ::ibv_post_send(end.qp, &send, &bad_send) != 0;
        while (received < kRounds && wrong == 0) {
            wrong += ::ibv_req_notify_cq(end.cq, 0) != 0;
            ibv_wc wc;
            bool any = false;
            while (::ibv_poll_cq(end.cq, 1, &wc) == 1) {
                any = true;
                wrong += wc.status != IBV_WC_SUCCESS;
                if (wc.opcode != IBV_WC_RECV)
                    continue;
                ++received;
                wrong += ::ibv_post_recv(end.qp, &receive, &bad_receive) != 0;
                if (received < kRounds || !first)
                    wrong += ::ibv_post_send(end.qp, &send, &bad_send) != 0;
            }
            if (any || received >= kRounds)
                continue;
            ibv_cq *cq = nullptr;
            void *context = nullptr;
            wrong += table()->get_cq_event(end.channel, &cq, &context) != 0;
            table()->ack_cq_events(cq, 1);
        }
        return wrong;
    };
    std::uint64_t wrong_there = 0;
    std::thread other([&] { wrong_there = side(wire.b(), false); });
    const std::uint64_t wrong_here = side(wire.a(), true);
    other.join();
    assert_int_equal(wrong_here + wrong_there, 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_completion_gets_lost),
        cmocka_unit_test(a_qp_breaks),
        cmocka_unit_test(a_post_fails),
        cmocka_unit_test(calls_fail_as_ordered),
        cmocka_unit_test(posts_are_counted),
        cmocka_unit_test(an_overrun),
        cmocka_unit_test(ports_go_down_and_up),
        cmocka_unit_test(a_device_is_pulled_out),
        cmocka_unit_test(device_memory_is_a_source),
        cmocka_unit_test(flow_rules_are_kept),
        cmocka_unit_test(an_address_that_nobody_has),
        cmocka_unit_test(a_route_that_fails),
        cmocka_unit_test(a_request_without_an_answer),
        cmocka_unit_test(a_request_is_repeated),
        cmocka_unit_test(the_end_of_a_connection_in_time),
        cmocka_unit_test(the_real_clock_wakes),
        cmocka_unit_test(threads_meet),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
