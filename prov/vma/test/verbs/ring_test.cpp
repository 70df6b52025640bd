// SPDX-License-Identifier: BSD-2-Clause
// Fast connections of the verbs device: small messages by a ring, the rest by send/receive, over the simulated NIC.
#include "prov/vma/test/verbs/ring.hpp"

#include <thread>

using namespace vma;
using namespace vma::test;

namespace {

using Phase = verbs::Fast::Phase;

void small_ones_move_to_the_ring_and_long_ones_back(void **)
{
    const Fast fast;
    const SimulatedHost host;
    RdmaPair pair(kSpins);
    Memory out(pair.a.domain(), 5000);
    Memory in(pair.b.domain(), 5000);
    for (int round = 0; round < 3; ++round) {
        fast_of(pair.a.ep)->patience = verbs::Fast::kAsk; // whatever came of the last time
        warm_up(pair.a, pair.b);
        const sim::Stats before = sim::stats();
        for (std::size_t length = 0; length <= 240; ++length)
            pass(pair.a, pair.b, out, in, length);
        assert_int_equal(sim::stats().receives - before.receives, 0); // the device has none of them
        assert_true(uses_ring(pair.a.ep));
        // What was taken is told in bulk: a quarter of 8 slots at a time.
        assert_true(sim::stats().messages - before.messages <= 241 + 241 / 2 + 1);
        pass(pair.a, pair.b, out, in, 241);
        assert_int_equal(fast_of(pair.a.ep)->phase, Phase::slow);
        assert_false(fast_of(pair.b.ep)->holding);
        pass(pair.a, pair.b, out, in, 5000);
        pass(pair.a, pair.b, out, in, 8);
        assert_int_equal(sim::stats().receives - before.receives, 3);
    }
    assert_true(is_quiet(pair.a.cq()) && is_quiet(pair.b.cq()));
}

// A sender that is ahead goes back, and waits for its receiver's receives as ever.
void a_full_ring_is_left(void **)
{
    const Fast fast;
    const SimulatedHost host;
    RdmaPair pair(kSpins);
    warm_up(pair.a, pair.b);
    for (std::uint64_t i = 0; i < 50; ++i)
        assert_int_equal(fi_inject(pair.a.ep, &i, sizeof i, 0), 0);
    assert_int_equal(fast_of(pair.a.ep)->phase, Phase::slow);
    assert_true(is_quiet(pair.b.cq()));
    Memory in(pair.b.domain(), 400);
    for (std::size_t i = 0; i < 50; ++i)
        assert_int_equal(fi_recv(pair.b.ep, &in.bytes[i * 8], 8, in.desc(), 0, tag(i)), 0);
    for (std::uint64_t i = 0; i < 50; ++i) {
        assert_ptr_equal(entry_of(pair.b.cq()).op_context, tag(i));
        assert_memory_equal(&in.bytes[i * 8], &i, sizeof i);
    }
    assert_true(is_quiet(pair.b.cq()));
    assert_true(fast_of(pair.a.ep)->patience > verbs::Fast::kAsk); // it did not pay
}

// Who asks and gets no answer goes on; the answer that comes late changes nothing.
void a_receiver_that_does_not_read_holds_nobody_up(void **)
{
    const Fast fast;
    const SimulatedHost host;
    RdmaPair pair(kSpins);
    Memory in(pair.b.domain(), 8);
    for (int i = 0; i < 200; ++i)
        assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
    for (int i = 0; i < 200; ++i)
        assert_int_equal(fi_inject(pair.a.ep, "x", 1, 0), 0);
    assert_int_equal(fast_of(pair.a.ep)->phase, Phase::cancelled);
    for (int i = 0; i < 200; ++i)
        assert_int_equal(entry_of(pair.b.cq()).len, 1);
    assert_true(is_quiet(pair.b.cq()));
    assert_false(fast_of(pair.b.ep)->holding);
    fast_of(pair.a.ep)->patience = verbs::Fast::kAsk;
    warm_up(pair.a, pair.b);
}

void only_so_many_have_a_ring(void **)
{
    const Fast fast("2"); // both ends are of one device here, but not of one domain
    const SimulatedHost host;
    RdmaPair pair(kSpins);
    auto second = pair.connect_one(nullptr, nullptr);
    const auto third = pair.connect_one(nullptr, nullptr);
    assert_non_null(fast_of(pair.a.ep));
    assert_non_null(fast_of(second.first));
    assert_null(fast_of(third.first));
    assert_null(fast_of(third.second));
    for (fid_ep *closed : {second.first, second.second})
        assert_int_equal(fi_close(&closed->fid), 0);
    second = pair.connect_one(nullptr, nullptr);
    assert_non_null(fast_of(second.first));
    assert_non_null(fast_of(second.second));
    for (fid_ep *closed : {second.first, second.second, third.first, third.second})
        assert_int_equal(fi_close(&closed->fid), 0);
}

void who_may_sleep_or_does_not_want_it_has_none(void **)
{
    const SimulatedHost host;
    for (const char *connections : {"0", "", "many", "-1", "65537"}) {
        const Fast fast(connections);
        const RdmaPair pair(kSpins);
        assert_null(fast_of(pair.a.ep));
    }
    const Fast fast;
    {
        const RdmaPair pair({.wait = FI_WAIT_FD});
        assert_null(fast_of(pair.a.ep));
    }
    const RdmaPair shared({.shared_receive = true, .wait = FI_WAIT_NONE});
    assert_null(fast_of(shared.a.ep));
    const RdmaPair region({.region = 4096, .wait = FI_WAIT_NONE});
    assert_null(fast_of(region.a.ep));
    ::setenv("FI_VMA_RNR_RETRY", "6", 1); // a slow receiver would end it
    const RdmaPair impatient(kSpins);
    ::unsetenv("FI_VMA_RNR_RETRY");
    assert_null(fast_of(impatient.a.ep));
}

void depth_and_size_are_parameters(void **)
{
    const Fast fast("1", "100", "1000");
    const SimulatedHost host;
    RdmaPair pair(kSpins);
    assert_int_equal(fast_of(pair.a.ep)->peer_shape.depth(), 64);
    warm_up(pair.a, pair.b);
    Memory out(pair.a.domain(), 2000);
    Memory in(pair.b.domain(), 2000);
    pass(pair.a, pair.b, out, in, 1000);
    assert_true(uses_ring(pair.a.ep));
    pass(pair.a, pair.b, out, in, 1001);
    assert_false(uses_ring(pair.a.ep));
}

// What was said to be sent is received; then the receives come back that nobody fills.
void the_end_loses_nothing(void **)
{
    const Fast fast;
    const SimulatedHost host;
    RdmaPair pair(kSpins);
    warm_up(pair.a, pair.b);
    Memory in(pair.b.domain(), 64);
    for (std::size_t i = 0; i < 8; ++i)
        assert_int_equal(fi_recv(pair.b.ep, &in.bytes[i * 8], 8, in.desc(), 0, tag(i)), 0);
    for (std::uint64_t i = 0; i < 5; ++i) {
        assert_int_equal(fi_send(pair.a.ep, &i, sizeof i, nullptr, 0, nullptr), 0);
        entry_of(pair.a.cq());
    }
    assert_int_equal(fi_shutdown(pair.a.ep, 0), 0);
    assert_int_equal(next_event(pair.b.net, pair.a.net).event, FI_SHUTDOWN);
    for (std::uint64_t i = 0; i < 5; ++i) {
        assert_ptr_equal(entry_of(pair.b.cq()).op_context, tag(i));
        assert_memory_equal(&in.bytes[i * 8], &i, sizeof i);
    }
    fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, tag(8));
    for (std::uint64_t i = 5; i < 9; ++i) {
        const fi_cq_err_entry error = error_of(pair.b.cq());
        assert_ptr_equal(error.op_context, tag(i));
        assert_int_equal(error.err, FI_ECANCELED);
        assert_int_equal(error.prov_errno, IBV_WC_WR_FLUSH_ERR);
    }
    assert_true(is_quiet(pair.b.cq()));
}

void a_broken_pair_gives_its_receives_back(void **)
{
    const Fast fast;
    const SimulatedHost host;
    RdmaPair pair(kSpins);
    warm_up(pair.a, pair.b);
    Memory in(pair.b.domain(), 8);
    assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, tag(1)), 0);
    sim::break_qp(verbs::Endpoint::from(pair.b.ep).qp->qp_num);
    assert_int_equal(next_event(pair.b.net, pair.a.net).event, FI_SHUTDOWN);
    assert_int_equal(error_of(pair.b.cq()).err, FI_ECANCELED);
    assert_int_equal(fi_inject(pair.b.ep, "x", 1, 0), -FI_ENOTCONN);
}

void faults_on_the_way_back(void **)
{
    const Fast fast;
    const SimulatedHost host;
    RdmaPair pair(kSpins);
    warm_up(pair.a, pair.b);
    const std::uint32_t a = verbs::Endpoint::from(pair.a.ep).qp->qp_num;
    Memory out(pair.a.domain(), 4000);
    Memory in(pair.b.domain(), 4000);
    sim::fail_post(a, ENOMEM); // of a slot: nothing was sent, and the next one is the same slot
    assert_int_equal(fi_inject(pair.a.ep, "x", 1, 0), -FI_EAGAIN);
    pass(pair.a, pair.b, out, in, 10);
    sim::fail_post(a, ENOMEM); // of the word that it leaves
    assert_int_equal(fi_send(pair.a.ep, out.bytes.data(), 4000, out.desc(), 0, nullptr), -FI_EAGAIN);
    assert_true(uses_ring(pair.a.ep));
    assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 4000, in.desc(), 0, nullptr), 0);
    assert_int_equal(fi_send(pair.a.ep, out.bytes.data(), 4000, out.desc(), 0, nullptr), 0);
    assert_true(is_quiet(pair.a.cq())); // the receiver has not looked
    assert_int_equal(entry_of(pair.b.cq()).len, 4000);
    entry_of(pair.a.cq());
}

// A message that is longer than its receive ends the connection, as the device would.
void too_long_for_its_receive(void **)
{
    const Fast fast;
    const SimulatedHost host;
    RdmaPair pair(kSpins);
    warm_up(pair.a, pair.b);
    Memory in(pair.b.domain(), 100);
    in.fill(1);
    const unsigned char behind = in.bytes[10];
    assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 10, in.desc(), 0, tag(3)), 0);
    assert_int_equal(fi_inject(pair.a.ep, "0123456789a", 11, 0), 0);
    const fi_cq_err_entry error = error_of(pair.b.cq());
    assert_ptr_equal(error.op_context, tag(3));
    assert_int_equal(error.err, FI_ETRUNC);
    assert_int_equal(error.prov_errno, IBV_WC_LOC_LEN_ERR);
    assert_int_equal(in.bytes[10], behind);
    assert_int_equal(next_event(pair.b.net, pair.a.net).event, FI_SHUTDOWN);
    assert_int_equal(next_event(pair.a.net, pair.b.net).event, FI_SHUTDOWN);
}

// Puts a slot into the receiver's memory, as the peer's device would.
void forge(fid_ep *ep, std::uint16_t length, bool right)
{
    const verbs::Fast &fast = *fast_of(ep);
    std::byte *at = fast.block.bytes() + fast.shape.end(fast.taken) - sizeof(verbs::FastTrailer);
    verbs::FastTrailer trailer = {7, length, 0, 0, static_cast<std::uint32_t>(fast.taken + 1)};
    trailer.hash = right ? verbs::fast_hash(trailer, at - length) : 0x600d;
    std::memcpy(at, &trailer, sizeof trailer);
}

void what_a_peer_may_write(void **)
{
    const Fast fast;
    const SimulatedHost host;
    RdmaPair pair(kSpins);
    warm_up(pair.a, pair.b);
    Memory in(pair.b.domain(), 100);
    assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 100, in.desc(), 0, nullptr), 0);
    forge(pair.b.ep, 100, false); // half of a message, or none
    assert_true(is_quiet(pair.b.cq()));
    forge(pair.b.ep, 100, true);
    assert_int_equal(entry_of(pair.b.cq()).len, 100);
}

// Words that nobody writes who keeps to the rules: slower at worst, and it is the peer's messages that wait.
void words_that_mean_nothing(void **)
{
    const Fast fast;
    const SimulatedHost host;
    for (const std::uint64_t word : {UINT64_MAX, std::uint64_t{0}, UINT64_MAX / 2, std::uint64_t{1}}) {
        RdmaPair pair(kSpins);
        warm_up(pair.a, pair.b);
        warm_up(pair.b, pair.a);
        verbs::FastWords &words = fast_of(pair.b.ep)->words();
        for (std::atomic<std::uint64_t> *each : {&words.ask, &words.leave, &words.answer, &words.taken})
            each->store(word);
        Memory out(pair.b.domain(), 300);
        Memory in(pair.a.domain(), 300);
        for (std::size_t i = 0; i < 150; ++i)
            pass(pair.b, pair.a, out, in, i % 20 == 0 ? 300 : 10);
        Memory never(pair.b.domain(), 8);
        for (int i = 0; i < 300; ++i) {
            const ssize_t posted = fi_recv(pair.b.ep, never.bytes.data(), 8, never.desc(), 0, nullptr);
            assert_int_equal(posted, i < 256 ? 0 : -FI_EAGAIN);
            assert_true(is_quiet(pair.b.cq()));
        }
    }
}

void a_slot_that_lies_about_its_length(void **)
{
    const Fast fast;
    const SimulatedHost host;
    RdmaPair pair(kSpins);
    warm_up(pair.a, pair.b);
    Memory in(pair.b.domain(), 100);
    assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 100, in.desc(), 0, tag(4)), 0);
    forge(pair.b.ep, UINT16_MAX, false);
    fi_cq_data_entry entry{};
    fi_cq_read(pair.b.cq(), &entry, 1);
    assert_int_equal(next_event(pair.b.net, pair.a.net).event, FI_SHUTDOWN);
    const fi_cq_err_entry error = error_of(pair.b.cq());
    assert_ptr_equal(error.op_context, tag(4));
    assert_int_equal(error.err, FI_ECANCELED);
}

// Two queues: who waits for its own sends looks at what the peer waits for.
void readers_of_the_other_queue_let_the_peer_go_on(void **)
{
    const Fast fast;
    const SimulatedHost host;
    RdmaSide a(kSpins);
    RdmaSide b(kSpins);
    fid_cq *sends = nullptr;
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_DATA;
    assert_int_equal(fi_cq_open(b.domain(), &attr, &sends, nullptr), 0);
    ofi::Address address;
    fid_pep *pep = b.net.listen(address);
    a.ep = a.open(a.net.info.get(), nullptr);
    assert_int_equal(fi_connect(a.ep, &address.v6, nullptr, 0), 0);
    const Event request = next_event(b.net, a.net);
    assert_int_equal(fi_endpoint(b.domain(), request.info.get(), &b.ep, nullptr), 0);
    assert_int_equal(fi_ep_bind(b.ep, &b.net.eq->fid, 0), 0);
    assert_int_equal(fi_ep_bind(b.ep, &b.cq()->fid, FI_RECV), 0);
    assert_int_equal(fi_ep_bind(b.ep, &sends->fid, FI_TRANSMIT), 0);
    assert_int_equal(fi_accept(b.ep, nullptr, 0), 0);
    assert_int_equal(next_event(a.net, b.net).event, FI_CONNECTED);
    assert_int_equal(next_event(b.net, a.net).event, FI_CONNECTED);
    {
        Memory out(a.domain(), 5000);
        Memory in(b.domain(), 5000);
        warm_up(a, b);
        for (int i = 0; i < 3000; ++i) // what is told the sender takes places of a queue that nobody reads
            pass(a, b, out, in, 8);
        assert_true(uses_ring(a.ep));
        assert_int_equal(fi_recv(b.ep, in.bytes.data(), 5000, in.desc(), 0, nullptr), 0);
        assert_int_equal(fi_send(a.ep, out.bytes.data(), 5000, out.desc(), 0, nullptr), 0);
        assert_true(is_quiet(a.cq()));
        for (int i = 0; i < 100; ++i)
            assert_true(is_quiet(sends));
        entry_of(a.cq());
        assert_int_equal(entry_of(b.cq()).len, 5000);
    }
    for (fid *closed : {&a.ep->fid, &b.ep->fid, &pep->fid, &sends->fid})
        assert_int_equal(fi_close(closed), 0);
    a.ep = b.ep = nullptr;
}

void a_blocking_read_sees_the_ring(void **)
{
    const Fast fast;
    const SimulatedHost host({}, sim::Clock::real);
    RdmaPair pair(kSpins);
    warm_up(pair.a, pair.b);
    Memory in(pair.b.domain(), 8);
    for (int i = 0; i < 20; ++i) {
        assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
        std::thread sender([&] { assert_int_equal(fi_inject(pair.a.ep, "now", 3, 0), 0); });
        fi_cq_data_entry entry{};
        assert_int_equal(fi_cq_sread(pair.b.cq(), &entry, 1, nullptr, -1), 1);
        sender.join();
    }
    assert_true(uses_ring(pair.a.ep));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(small_ones_move_to_the_ring_and_long_ones_back),
        cmocka_unit_test(a_full_ring_is_left),
        cmocka_unit_test(a_receiver_that_does_not_read_holds_nobody_up),
        cmocka_unit_test(only_so_many_have_a_ring),
        cmocka_unit_test(who_may_sleep_or_does_not_want_it_has_none),
        cmocka_unit_test(depth_and_size_are_parameters),
        cmocka_unit_test(the_end_loses_nothing),
        cmocka_unit_test(a_broken_pair_gives_its_receives_back),
        cmocka_unit_test(faults_on_the_way_back),
        cmocka_unit_test(too_long_for_its_receive),
        cmocka_unit_test(what_a_peer_may_write),
        cmocka_unit_test(words_that_mean_nothing),
        cmocka_unit_test(a_slot_that_lies_about_its_length),
        cmocka_unit_test(readers_of_the_other_queue_let_the_peer_go_on),
        cmocka_unit_test(a_blocking_read_sees_the_ring),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
