// SPDX-License-Identifier: BSD-2-Clause
// What the simulated wire does in time, with a clock that the test turns: retries, rates, the connection manager's
// time-outs, completion times.
#include "contrib/lab/sim/test/wire.hpp"

#include <cstring>

using namespace vma::sim;
using namespace vma::sim::test;
using std::chrono::microseconds;

namespace {

void not_ready_is_retried_in_time(void **)
{
    Wire wire({.rnr_retry = 3, .rnr_timer = 14}); // 1.28 ms
    wire.send(1);
    assert_int_equal(stats().rnr_naks, 1);
    advance(microseconds(1279));
    assert_int_equal(stats().rnr_naks, 1);
    advance(microseconds(1));
    assert_int_equal(stats().rnr_naks, 2);
    advance(microseconds(2 * 1280 - 1));
    assert_true(wire.pair->empty(wire.a()));
    advance(microseconds(1));
    assert_int_equal(stats().rnr_naks, 4); // the first, and 3 again
    assert_int_equal(wire.only(wire.a()).status, IBV_WC_RNR_RETRY_EXC_ERR);
}

void a_receive_ends_the_waiting(void **)
{
    Wire wire({.rnr_retry = 1, .rnr_timer = 0}); // 655.36 ms
    wire.send(1);
    wire.send(2);
    wire.receive(1);
    assert_int_equal(wire.only(wire.a()).wr_id, 1);
    assert_int_equal(wire.only(wire.b()).wr_id, 1);
    // Counting begins anew with each message.
    advance(milliseconds(655));
    wire.receive(2);
    assert_int_equal(wire.only(wire.a()).wr_id, 2);
    advance(seconds(10));
    assert_int_equal(stats().rnr_naks, 2);
}

void not_ready_for_ever(void **)
{
    Wire wire({.rnr_retry = 7, .rnr_timer = 31}); // 491.52 ms
    wire.send(1);
    advance(seconds(60));
    assert_true(wire.pair->empty(wire.a()));
    wire.receive(1);
    assert_int_equal(wire.only(wire.a()).status, IBV_WC_SUCCESS);
}

void forced_not_ready(void **)
{
    Wire wire({.rnr_timer = 14});
    wire.receive(1);
    force_rnr(wire.b().qp->qp_num, 2);
    wire.send(1);
    assert_true(wire.pair->empty(wire.a()));
    advance(microseconds(2 * 1280));
    assert_int_equal(wire.only(wire.a()).status, IBV_WC_SUCCESS);
    assert_int_equal(stats().rnr_naks, 2);
}

void a_cut_wire(void **)
{
    Wire wire({.retry = 2, .ack_timeout = 14}); // 67.1 ms
    cut(0, 1);
    wire.write(1, 100);
    advance(milliseconds(60));
    join(1, 0);
    assert_true(wire.pair->empty(wire.a()));
    advance(milliseconds(8));
    assert_int_equal(wire.only(wire.a()).status, IBV_WC_SUCCESS);
    assert_int_equal(stats().lost, 1);
    // One transmission and two again, each with its time-out.
    cut(0, 1);
    wire.write(2, 100);
    wire.write(3, 100);
    advance(Ns(3 * (4096LL << 14) - 1));
    assert_true(wire.pair->empty(wire.a()));
    advance(Ns(1));
    ibv_wc wc[3];
    assert_int_equal(::ibv_poll_cq(wire.a().cq, 3, wc), 2);
    assert_int_equal(wc[0].status, IBV_WC_RETRY_EXC_ERR);
    assert_int_equal(wc[1].status, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(wire.pair->state(wire.b()), IBV_QPS_RTS); // it knows nothing
}

void a_wrong_sequence_number(void **)
{
    Wire wire({.retry = 0, .ack_timeout = 5});
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    assert_int_equal(table()->modify_qp(wire.b().qp, &attr, IBV_QP_STATE), 0);
    wire.write(1, 100); // a queue that drains still receives
    assert_int_equal(wire.only(wire.a()).status, IBV_WC_SUCCESS);
    // One that begins anew, and not as its peer counts.
    ibv_qp *qp = wire.b().qp;
    ibv_qp_init_attr init{};
    ibv_qp_attr old{};
    assert_int_equal(table()->query_qp(qp, &old, 0, &init), 0);
    old.rq_psn += 1;
    constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    const std::pair<ibv_qp_state, int> steps[] = {
        {IBV_QPS_RESET, IBV_QP_STATE}, {IBV_QPS_INIT, kInit}, {IBV_QPS_RTR, kRtr}};
    for (const auto &[state, mask] : steps) {
        old.qp_state = state;
        assert_int_equal(table()->modify_qp(qp, &old, mask), 0);
    }
    wire.write(2, 100);
    advance(seconds(1));
    assert_int_equal(wire.only(wire.a()).status, IBV_WC_RETRY_EXC_ERR);
}

void set_rate(Wire &wire, std::uint32_t kbit, std::uint32_t burst = 0)
{
    ibv_qp_rate_limit_attr attr{};
    attr.rate_limit = kbit;
    attr.max_burst_sz = burst;
    assert_int_equal(::ibv_modify_qp_rate_limit(wire.a().qp, &attr), 0);
}

// Keeps the queue full for one second of the wire's time; bytes that arrived.
std::uint64_t bytes_in_a_second(Wire &wire, std::uint32_t length)
{
    const Ns end = now() + seconds(1);
    const std::uint64_t before = stats().bytes;
    std::uint64_t outstanding = 0;
    for (;;) {
        for (; outstanding < 16; ++outstanding)
            wire.write(1, length);
        if (next_due() > end)
            break;
        advance(next_due() - now());
        ibv_wc wc[16];
        outstanding -= static_cast<std::uint64_t>(::ibv_poll_cq(wire.a().cq, 16, wc));
    }
    return stats().bytes - before;
}

void rates_are_held(void **)
{
    // kbit/s, bytes of a message
    constexpr std::pair<std::uint32_t, std::uint32_t> kRates[] = {
        {1000, 1000}, {1000, 100}, {100'000, 1000}, {100'000, 65536}, {10'000'000, 65536}};
    for (const auto &[rate, length] : kRates) {
        Wire wire;
        set_rate(wire, rate);
        const auto got = static_cast<double>(bytes_in_a_second(wire, length));
        const double wanted = rate * 1000.0 / 8;
        assert_true(got > wanted * 0.98 - length && got < wanted * 1.02 + length);
        wire.pair->fail(wire.a());
    }
}

void a_burst_is_as_large_as_allowed(void **)
{
    Wire wire;
    set_rate(wire, 8, 3000); // 1000 bytes/s
    for (std::uint64_t i = 0; i < 6; ++i)
        wire.write(i, 1000);
    // The first takes its place, three more are the burst.
    assert_int_equal(stats().messages, 4);
    advance(milliseconds(999));
    assert_int_equal(stats().messages, 4);
    advance(milliseconds(1));
    assert_int_equal(stats().messages, 5);
    set_rate(wire, 0);
    advance(seconds(1));
    assert_int_equal(stats().messages, 6);
    wire.write(9, 1000); // no limit any more
    assert_int_equal(stats().messages, 7);
}

void a_long_message_ends_with_its_last_packet(void **)
{
    Wire wire;
    set_rate(wire, 8000); // 1 byte a microsecond
    wire.write(1, 5 * 4096);
    advance(microseconds(4 * 4096 - 1));
    assert_true(wire.pair->empty(wire.a()));
    advance(microseconds(1));
    assert_int_equal(wire.only(wire.a()).status, IBV_WC_SUCCESS);
    assert_int_equal(stats().packets, 5);
}

void rates_out_of_range(void **)
{
    Config config = two_devices();
    config.devices[0].rate_min = 1000;
    config.devices[0].rate_max = 2000;
    config.devices[1].rate_max = 0;
    Wire wire({}, config);
    ibv_device_attr_ex device{};
    verbs_context *context = verbs_get_ctx(wire.a().id->verbs);
    assert_int_equal(context->query_device_ex(wire.a().id->verbs, nullptr, &device, sizeof(device)), 0);
    assert_int_equal(device.packet_pacing_caps.qp_rate_limit_min, 1000);
    assert_int_equal(device.packet_pacing_caps.qp_rate_limit_max, 2000);
    assert_true(::ibv_is_qpt_supported(device.packet_pacing_caps.supported_qpts, IBV_QPT_RC));
    ibv_qp_rate_limit_attr attr{};
    attr.rate_limit = 999;
    assert_int_equal(::ibv_modify_qp_rate_limit(wire.a().qp, &attr), EINVAL);
    attr.rate_limit = 2001;
    assert_int_equal(::ibv_modify_qp_rate_limit(wire.a().qp, &attr), EINVAL);
    attr.rate_limit = 2000;
    assert_int_equal(::ibv_modify_qp_rate_limit(wire.a().qp, &attr), 0);
    assert_int_equal(::ibv_modify_qp_rate_limit(wire.b().qp, &attr), EOPNOTSUPP);
}

// As a ConnectX-4's clock, but shorter: it begins anew within the test.
void completions_have_the_devices_time(void **)
{
    constexpr unsigned kKhz = 156'250;
    constexpr unsigned kBits = 28;
    Config config = two_devices();
    config.devices[1].clock_khz = kKhz;
    config.devices[1].clock_bits = kBits;
    Wire wire({.stamped = true}, config);
    ibv_values_ex values{};
    for (std::uint64_t i = 0; i < 5; ++i) {
        advance(milliseconds(700));
        const Ns sent = now();
        wire.receive(i);
        wire.send(i);
        advance(milliseconds(1));
        const auto ns = static_cast<std::uint64_t>(sent.count());
        assert_int_equal(wire.pair->wait_stamped(wire.a()).ticks, ns);
        assert_int_equal(wire.pair->wait_stamped(wire.b()).ticks, ns / 100 * kKhz / 10'000 % (1U << kBits));
    }
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    assert_int_equal(::ibv_query_rt_values_ex(wire.a().id->verbs, &values), 0);
    assert_int_equal(values.raw_clock.tv_nsec, now().count());
    assert_true(fail_call("query_rt_values", 1, EIO));
    assert_int_equal(::ibv_query_rt_values_ex(wire.a().id->verbs, &values), EIO);
}

void a_device_without_a_clock(void **)
{
    Config config = two_devices();
    config.devices[0].clock_khz = 0;
    Wire wire({}, config);
    ibv_context *context = wire.a().id->verbs;
    assert_null(behaviour::create_stamped_queue(context, 4, nullptr));
    assert_int_equal(errno, EOPNOTSUPP);
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    assert_int_equal(::ibv_query_rt_values_ex(context, &values), EOPNOTSUPP);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(not_ready_is_retried_in_time),
        cmocka_unit_test(a_receive_ends_the_waiting),
        cmocka_unit_test(not_ready_for_ever),
        cmocka_unit_test(forced_not_ready),
        cmocka_unit_test(a_cut_wire),
        cmocka_unit_test(a_wrong_sequence_number),
        cmocka_unit_test(rates_are_held),
        cmocka_unit_test(a_burst_is_as_large_as_allowed),
        cmocka_unit_test(a_long_message_ends_with_its_last_packet),
        cmocka_unit_test(rates_out_of_range),
        cmocka_unit_test(completions_have_the_devices_time),
        cmocka_unit_test(a_device_without_a_clock),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
