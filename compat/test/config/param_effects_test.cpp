// SPDX-License-Identifier: BSD-2-Clause
// What parameters change in how an accelerated connection looks for what has come. Each is tried often enough that the
// helper thread, which takes what nobody else has taken, can't have done it instead.
#include "fabtests/unit.hpp"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "compat/src/engine/devices/moderation.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/stats/region.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr int kTimes = 200;

// One parameter, as long as this lives. The helper thread is at rest when it changes, and nobody is polling.
template <class Value> class Changed
{
public:
    Changed(Value &param, std::type_identity_t<Value> value) : param_(param), before_(param) { set(value); }
    ~Changed() { set(before_); }
    Changed(const Changed &) = delete;
    Changed &operator=(const Changed &) = delete;

private:
    void set(Value value)
    {
        const sock::LockGuard at_rest(sock::g_helper.turn);
        sock::engine_exclude_polling(true);
        param_ = value;
        sock::engine_exclude_polling(false);
    }

    Value &param_;
    const Value before_;
};

void send_one(End &end)
{
    const std::uint64_t before = end.sent;
    send_some(end, 1);
    assert_int_equal(end.sent, before + 1);
}

// VMA_RX_POLL_ON_TX_TCP
void a_send_takes_what_has_come(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    const Changed polls(config::g_params.rx_poll_on_tx_tcp, true);
    for (int i = 0; i < kTimes; ++i) {
        send_one(pair.a); // taken by this call, or by the next
        send_one(pair.b);
        assert_true(sock::has_input(*pair.b.s));
        receive_some(pair.b, pair.a, 1, 0);
        receive_some(pair.a, pair.b, 1, 0);
    }
    drain(pair);
}

// VMA_RX_CQ_DRAIN_RATE_NSEC
void a_receive_looks_for_more(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    const Changed rate(config::g_params.rx_cq_drain_rate_nsec, 1);
    for (int i = 0; i < kTimes; ++i) {
        send_one(pair.a);
        sock::engine_drain();
        send_one(pair.a);
        receive_some(pair.b, pair.a, 1, 0); // finds the first waiting, and the second by the look
        assert_true(sock::has_input(*pair.b.s));
        receive_some(pair.b, pair.a, 1, 0);
    }
    drain(pair);
}

// VMA_CQ_POLL_BATCH_MAX
void a_poll_takes_so_many(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    sock::engine_drain();
    for (const unsigned batch : {1U, 2U, 128U}) {
        const Changed limit(config::g_params.cq_poll_batch_max, batch);
        unsigned most = 0;
        for (int i = 0; i < kTimes; ++i) {
            for (int n = 0; n < 4; ++n)
                send_one(pair.a);
            for (unsigned taken = sock::engine_poll(); taken != 0; taken = sock::engine_poll())
                most = std::max(most, taken);
            receive_some(pair.b, pair.a, 100, 0);
        }
        assert_true(most >= 1 && most <= batch);
        assert_true(batch < 128 || most >= 2);
    }
    drain(pair);
}

// VMA_PROGRESS_ENGINE_WCE_MAX; 0 as 1
void the_internal_thread_takes_so_many(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    const Changed one_a_poll(config::g_params.cq_poll_batch_max, 1);
    for (const unsigned limit : {0U, 1U, 3U, 10000U}) {
        const Changed most(config::g_params.progress_most, limit);
        const sock::LockGuard at_rest(sock::g_helper.turn); // what it would do is done here
        sock::engine_drain();
        constexpr unsigned kSent = 10;
        unsigned there = 0;
        for (unsigned n = 0; n < kSent; ++n)
            send_one(pair.a);
        for (unsigned taken = sock::engine_drain_some(); taken != 0; taken = sock::engine_drain_some()) {
            assert_in_range(taken, 1, std::max(limit, 1U));
            if (there == 0)
                assert_true(limit < kSent ? taken == std::max(limit, 1U) : taken > 3);
            there += taken;
        }
        assert_true(there > 3);
        receive_some(pair.b, pair.a, kSent, 0);
    }
}

// VMA_PROGRESS_ENGINE_INTERVAL, in turns of VMA_TIMER_RESOLUTION_MSEC
void the_internal_thread_looks_so_often(void **)
{
    const Changed turn(config::g_params.timer_resolution_msec, 10);
    for (const auto &[interval, turns] :
         {std::pair{0U, 10U}, {1U, 1U}, {10U, 1U}, {35U, 4U}, {100U, 10U}, {5000U, 10U}}) {
        const Changed wanted(config::g_params.progress_interval, interval);
        assert_int_equal(sock::helper_turns_per_drain(), turns);
    }
}

// `asked`: of SO_RCVBUF, 0 for the default.
void expect_waiting(int asked, std::uint32_t ring)
{
    Pair pair;
    if (asked != 0)
        assert_int_equal(::setsockopt(pair.b.fd, SOL_SOCKET, SO_RCVBUF, &asked, sizeof asked), 0);
    assert_true(offload(pair));
    drain(pair);
    const std::uint64_t before = pair.a.sent;
    for (int i = 0; i < kTimes; ++i) {
        send_some(pair.a, 32768);
        sock::engine_drain();
    }
    assert_in_range(pair.a.sent - before, ring / 2, ring);
    drain(pair);
}

// VMA_STREAM_RING: what a sender gets rid of while nobody reads, however long it tries.
void so_much_waits_for_a_reader(void **)
{
    for (const std::uint32_t ring : {65536U, 1048576U}) {
        const Changed size(config::g_params.stream_ring, ring);
        expect_waiting(0, ring);
    }
}

// A program that makes SO_RCVBUF small holds its sender back by that.
void a_small_receive_buffer_makes_a_small_ring(void **)
{
    const Changed size(config::g_params.stream_ring, 262144U);
    for (const auto &[asked, ring] : {std::pair{0, 262144U}, {4096, 65536U}, {65536, 65536U}, {65537, 131072U}})
        expect_waiting(asked, ring);
}

// VMA_TX_WRE, VMA_RX_WRE and VMA_TX_MAX_INLINE; their defaults are VMA's, not the provider's.
void queues_have_the_sizes_asked_for(void **)
{
    fi_tx_attr tx = {};
    fi_rx_attr rx = {};
    fi_info info = {};
    info.tx_attr = &tx;
    info.rx_attr = &rx;
    const auto socket = std::make_unique<sock::Stream>();
    const Changed tx_default(config::g_params.tx_wre, 2048);
    const Changed rx_default(config::g_params.rx_wre, 16000);
    sock::kRemoteRing.prepare(*socket, info);
    assert_int_equal(tx.size + rx.size, 0);
    const Changed tx_asked(config::g_params.tx_wre, 1000);
    const Changed rx_asked(config::g_params.rx_wre, 300);
    sock::kRemoteRing.prepare(*socket, info);
    assert_int_equal(tx.size, 1000);
    assert_int_equal(rx.size, 300);
    const Changed tx_least(config::g_params.tx_wre, 1);
    sock::kRemoteRing.prepare(*socket, info);
    assert_int_equal(tx.size, 16);
    tx.inject_size = 256; // of the device
    sock::kRemoteRing.prepare(*socket, info);
    assert_int_equal(tx.inject_size, 256);
    const Changed too_much_inline(config::g_params.tx_max_inline, 800);
    sock::kRemoteRing.prepare(*socket, info);
    assert_int_equal(tx.inject_size, 256);
    const Changed no_inline(config::g_params.tx_max_inline, 0);
    sock::kRemoteRing.prepare(*socket, info);
    assert_int_equal(tx.inject_size, 0);
}

std::size_t g_device_memory;

int note_option(fid_t, int, int name, const void *value, std::size_t size)
{
    assert_int_equal(name, static_cast<int>(FI_OPT_VMA_DEVICE_MEMORY));
    assert_int_equal(size, sizeof g_device_memory);
    std::memcpy(&g_device_memory, value, size);
    return 0;
}

// VMA_RING_DEV_MEM_TX
void an_endpoint_is_asked_for_device_memory(void **)
{
    fi_ops_ep ops = {};
    fid_ep endpoint = {};
    ops.size = sizeof ops;
    ops.setopt = note_option;
    endpoint.ops = &ops;
    const auto socket = std::make_unique<sock::Stream>();
    const Changed none(config::g_params.ring_dev_mem_tx, 0);
    assert_int_equal(sock::kRemoteRing.prepared(*socket, endpoint), 0);
    assert_int_equal(g_device_memory, 0);
    const Changed some(config::g_params.ring_dev_mem_tx, 5000);
    assert_int_equal(sock::kRemoteRing.prepared(*socket, endpoint), 0);
    assert_int_equal(g_device_memory, 5000);
}

fi_vma_device_memory g_carried;

int tell_memory(fid_t, int, int name, void *value, std::size_t *size)
{
    assert_int_equal(name, static_cast<int>(FI_OPT_VMA_DEVICE_MEMORY));
    assert_int_equal(*size, sizeof g_carried);
    std::memcpy(value, &g_carried, sizeof g_carried);
    return 0;
}

// While the connection is there, and at its end: each packet once.
void what_device_memory_carried_is_told(void **)
{
    fi_ops_ep ops = {};
    ops.size = sizeof ops;
    ops.getopt = tell_memory;
    fid_ep endpoint = {};
    endpoint.ops = &ops;
    const auto socket = std::make_unique<sock::Stream>();
    socket->remote = true;
    socket->endpoint = &endpoint;
    socket->record = &stats::claim(1000, IPPROTO_TCP, 4, false);
    stats::use_ring(*socket->record.load(), stats::RingKind::kRdma, "sim9");
    const stats::Ring &ring = stats::header().rings[socket->record.load()->facts.ring - 1];
    const Changed some(config::g_params.ring_dev_mem_tx, 5000);
    g_carried = {5000, 70, 7, 1};
    sock::kRemoteRing.publish(*socket);
    sock::kRemoteRing.publish(*socket);
    assert_true(ring.device_memory == 5000 && ring.memory_bytes == 70 && ring.memory_packets == 7);
    g_carried = {5000, 100, 10, 1};
    sock::kRemoteRing.leave(*socket);
    assert_true(ring.memory_bytes == 100 && ring.memory_packets == 10 && ring.memory_oob == 1);
    g_carried = {4000, 30, 3, 2}; // of the next connection
    sock::kRemoteRing.publish(*socket);
    assert_true(ring.memory_bytes == 130 && ring.memory_packets == 13 && ring.memory_oob == 3);
    stats::give_back(*socket->record.load());
    socket->endpoint = nullptr;
}

void expect_moderation(sock::Moderation got, unsigned completions, unsigned period)
{
    assert_int_equal(got.completions, completions);
    assert_int_equal(got.period, period);
}

// VMA_CQ_AIM_*: libvma's rule
void moderation_fits_the_traffic(void **)
{
    const Changed count(config::g_params.cq_moderation_count, 48);
    const Changed period(config::g_params.cq_moderation_period_usec, 50);
    const Changed rate(config::g_params.cq_aim_interrupts_rate, 5000);
    const Changed most(config::g_params.cq_aim_max_count, 560);
    const Changed longest(config::g_params.cq_aim_max_period_usec, 250);
    expect_moderation(sock::fitting(0, 0, 250), 48, 50);                    // silence
    expect_moderation(sock::fitting(1000, 64'000, 250), 0, 0);              // small and few
    expect_moderation(sock::fitting(5000, 5000 * 4096, 250), 4, 150);       // 20,000 large ones a second
    expect_moderation(sock::fitting(250'000, 250'000 * 64, 250), 200, 199); // a million small ones
    expect_moderation(sock::fitting(100, 100 * 4096, 250), 0, 0);           // fewer than there may be interrupts
    const Changed least(config::g_params.cq_aim_max_count, 10);
    const Changed shortest(config::g_params.cq_aim_max_period_usec, 20);
    expect_moderation(sock::fitting(250'000, 250'000 * 64, 250), 10, 20);
    const Changed nonsense(config::g_params.cq_aim_interrupts_rate, 0);
    expect_moderation(sock::fitting(250'000, 250'000 * 64, 250), 10, 20);
}

fi_vma_moderation g_moderation;
int g_moderations = 0;
int g_moderation_error = 0;

int note_moderation(fid *, int command, void *argument)
{
    assert_int_equal(command, static_cast<int>(FI_VMA_MODERATE));
    if (g_moderation_error == 0) {
        g_moderation = *static_cast<fi_vma_moderation *>(argument);
        ++g_moderations;
    }
    return g_moderation_error;
}

void expect_set(int times, unsigned completions, unsigned period)
{
    assert_int_equal(g_moderations, times);
    expect_moderation({g_moderation.completions, g_moderation.period}, completions, period);
}

// A device's, as far as moderation goes.
struct ModeratedQueue {
    fi_ops ops = {};
    fid_cq fid = {};
    ModeratedQueue()
    {
        ops.size = sizeof ops;
        ops.control = note_moderation;
        fid.fid.ops = &ops;
    }
    ModeratedQueue(const ModeratedQueue &) = delete;
    ModeratedQueue &operator=(const ModeratedQueue &) = delete;
};

// VMA_CQ_MODERATION_ENABLE, VMA_CQ_AIM_INTERVAL_MSEC
void moderation_is_set_and_adapted(void **)
{
    const Changed count(config::g_params.cq_moderation_count, 48);
    const Changed period(config::g_params.cq_moderation_period_usec, 50);
    const Changed enabled(config::g_params.cq_moderation, true);
    const Changed interval(config::g_params.cq_aim_interval_msec, 250);
    const sock::LockGuard guard(sock::g_offload.lock); // nobody but us looks at devices
    ModeratedQueue queue;
    sock::Device &d = sock::remote_device_at(0);
    d.cq = &queue.fid;
    sock::moderate(d);
    expect_set(1, 48, 50);
    const std::uint32_t turns = sock::helper_turns_in(250);
    d.completions = 250'000;
    d.bytes = 64 * d.completions;
    sock::adapt_moderation(turns - 1); // not yet
    expect_set(1, 48, 50);
    sock::adapt_moderation(turns);
    assert_int_equal(g_moderations, 2);
    assert_in_range(g_moderation.completions, 100, 200); // turns of the helper thread make up at least so many ms
    sock::adapt_moderation(turns * 2);                   // silence
    expect_set(3, 48, 50);
    sock::adapt_moderation(turns * 3); // no news
    expect_set(3, 48, 50);
    g_moderation_error = -FI_EOPNOTSUPP;
    d.completions += 10;
    sock::adapt_moderation(turns * 4);
    g_moderation_error = 0;
    sock::adapt_moderation(turns * 5); // it is not asked again
    expect_set(3, 48, 50);
    config::g_params.cq_moderation = false;
    sock::moderate(d);
    expect_set(3, 48, 50);
    d = sock::Device{};
}

// vma_modify_ring(): its own lock, the numbers that fit, and no adaptation afterwards. The last of its kind here: what
// is asked for stays.
void moderation_is_what_the_program_asks_for(void **)
{
    const Changed enabled(config::g_params.cq_moderation, false);
    const Changed interval(config::g_params.cq_aim_interval_msec, 250);
    assert_int_equal(sock::moderate_as_asked(1, 2), 0); // no device
    ModeratedQueue queue;
    sock::Device &d = sock::remote_device_at(0);
    g_moderations = 0;
    {
        const sock::LockGuard guard(sock::g_offload.lock);
        d.cq = &queue.fid;
        sock::moderate(d); // one that is opened later
        expect_set(1, 1, 2);
    }
    assert_int_equal(sock::moderate_as_asked(100, 70'000), 1);
    expect_set(2, 100, 65535);
    assert_int_equal(sock::moderate_as_asked(100, 70'000), 1); // it is so
    expect_set(2, 100, 65535);
    {
        const sock::LockGuard guard(sock::g_offload.lock);
        d.completions = 250'000;
        d.bytes = 64 * d.completions;
        sock::adapt_moderation(sock::helper_turns_in(250));
        expect_set(2, 100, 65535);
    }
    g_moderation_error = -FI_EOPNOTSUPP;
    assert_int_equal(sock::moderate_as_asked(0, 0), 0);
    g_moderation_error = 0;
    assert_int_equal(sock::moderate_as_asked(0, 0), 1);
    expect_set(3, 0, 0);
    const sock::LockGuard guard(sock::g_offload.lock);
    d = sock::Device{};
}

// Every extreme at once: bytes stay whole.
void nothing_is_lost(void **)
{
    Pair pair;
    const Changed polls(config::g_params.rx_poll_on_tx_tcp, true);
    const Changed rate(config::g_params.rx_cq_drain_rate_nsec, 1);
    const Changed limit(config::g_params.cq_poll_batch_max, 1);
    const Changed most(config::g_params.progress_most, 0);
    const Changed yields(config::g_params.rx_poll_yield, 1);
    random_traffic(pair);
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(a_send_takes_what_has_come),
        cmocka_unit_test(a_receive_looks_for_more),
        cmocka_unit_test(a_poll_takes_so_many),
        cmocka_unit_test(the_internal_thread_takes_so_many),
        cmocka_unit_test(the_internal_thread_looks_so_often),
        cmocka_unit_test(so_much_waits_for_a_reader),
        cmocka_unit_test(a_small_receive_buffer_makes_a_small_ring),
        cmocka_unit_test(queues_have_the_sizes_asked_for),
        cmocka_unit_test(an_endpoint_is_asked_for_device_memory),
        cmocka_unit_test(what_device_memory_carried_is_told),
        cmocka_unit_test(moderation_fits_the_traffic),
        cmocka_unit_test(moderation_is_set_and_adapted),
        cmocka_unit_test(moderation_is_what_the_program_asks_for),
        cmocka_unit_test(nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
