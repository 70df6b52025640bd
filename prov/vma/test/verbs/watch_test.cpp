// SPDX-License-Identifier: BSD-2-Clause
// Keep-alive and the send time-out of connections, on the simulated NIC's clock, which is the provider's here too.
#include "prov/vma/test/verbs/pair.hpp"

#include "ofi/domain.hpp"
#include "verbs/clock.hpp"

using namespace vma;
using namespace vma::test;

namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kTimeout = 100'000; // us
constexpr int kTimeoutMs = 100;

// The provider goes by the NIC's clock, which only turns when a test says so.
class TurnedHost
{
public:
    TurnedHost()
    {
        verbs::use_clock([]() noexcept { return static_cast<std::uint64_t>(sim::now().count()); });
    }
    ~TurnedHost() { verbs::use_clock(nullptr); }
    TurnedHost(const TurnedHost &) = delete;
    TurnedHost &operator=(const TurnedHost &) = delete;

private:
    SimulatedHost host_;
};

int set_timeout(fid_ep *ep, unsigned name, std::uint64_t us)
{
    return set_option(ep, name, us);
}

// Time passes while the program does nothing but to look at events. The ms until one came; -1: none.
int turn(RdmaPair &pair, int ms, Event *event = nullptr)
{
    for (int i = 1; i <= ms; ++i) {
        sim::advance(milliseconds(1));
        Event at_b = pair.b.net.poll();
        if (event == nullptr)
            assert_int_equal(at_b.result, -FI_EAGAIN);
        Event at_a = pair.a.net.poll();
        if (at_a.result != -FI_EAGAIN) {
            if (event != nullptr)
                *event = std::move(at_a);
            return i;
        }
    }
    return -1;
}

void a_peer_that_is_gone_is_found(void **)
{
    const TurnedHost host;
    RdmaPair pair;
    Memory in(pair.a.domain(), 8);
    assert_int_equal(set_timeout(pair.a.ep, FI_OPT_VMA_KEEPALIVE_TIMEOUT, kTimeout), 0);
    assert_int_equal(fi_recv(pair.a.ep, in.bytes.data(), 8, in.desc(), 0, &in), 0);
    sim::port_down(0);
    Event event;
    const int after = turn(pair, 10 * kTimeoutMs, &event);
    assert_int_equal(event.event, FI_SHUTDOWN);
    assert_ptr_equal(event.fid, &pair.a.ep->fid);
    assert_in_range(after, 2 * kTimeoutMs, 2 * kTimeoutMs + kTimeoutMs / 2);
    // The receive comes back, and nothing of the probe is to be seen.
    const fi_cq_err_entry error = error_of(pair.a.cq());
    assert_ptr_equal(error.op_context, &in);
    assert_int_equal(error.err, FI_ECANCELED);
    assert_true(is_quiet(pair.a.cq()));
    assert_int_equal(turn(pair, 10 * kTimeoutMs), -1); // told once
}

// The device may find it out before.
void the_device_gives_up_first(void **)
{
    const TurnedHost host;
    RdmaPair pair;
    assert_int_equal(set_timeout(pair.a.ep, FI_OPT_VMA_KEEPALIVE_TIMEOUT, 3600 * 1'000'000ULL), 0);
    sim::port_down(0);
    Event event;
    event.result = -FI_EAGAIN;
    int seconds = 0;
    for (; seconds < 3 * 3600 && event.result == -FI_EAGAIN; ++seconds) {
        sim::advance(std::chrono::seconds(1));
        event = pair.a.net.poll();
    }
    assert_int_equal(event.event, FI_SHUTDOWN);
    assert_true(seconds < 2 * 3600);
    assert_true(is_quiet(pair.a.cq()));
}

void an_idle_peer_is_probed_and_stays(void **)
{
    const TurnedHost host;
    RdmaPair pair;
    Memory in(pair.b.domain(), 8);
    assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
    assert_int_equal(set_timeout(pair.a.ep, FI_OPT_VMA_KEEPALIVE_TIMEOUT, kTimeout), 0);
    const sim::Stats before = sim::stats();
    assert_int_equal(turn(pair, 50 * kTimeoutMs), -1);
    assert_in_range(sim::stats().messages - before.messages, 30, 50);
    assert_int_equal(sim::stats().bytes, before.bytes);
    assert_true(is_quiet(pair.a.cq()) && is_quiet(pair.b.cq())); // its receive is still there
    assert_int_equal(fi_inject(pair.a.ep, "x", 1, 0), 0);
    assert_int_equal(entry_of(pair.b.cq()).len, 1);
}

void traffic_of_either_direction_needs_no_probe(void **)
{
    for (const bool out : {true, false}) {
        const TurnedHost host;
        RdmaPair pair;
        Memory in(pair.a.domain(), 8);
        Memory there(pair.b.domain(), 8);
        assert_int_equal(set_timeout(pair.a.ep, FI_OPT_VMA_KEEPALIVE_TIMEOUT, kTimeout), 0);
        const std::uint64_t before = sim::stats().messages;
        for (int i = 0; i < 100; ++i) {
            RdmaSide &from = out ? pair.a : pair.b;
            RdmaSide &to = out ? pair.b : pair.a;
            Memory &place = out ? there : in;
            assert_int_equal(fi_recv(to.ep, place.bytes.data(), 8, place.desc(), 0, nullptr), 0);
            assert_int_equal(fi_send(from.ep, "x", 1, nullptr, 0, nullptr), 0);
            entry_of(from.cq());
            entry_of(to.cq());
            assert_int_equal(turn(pair, kTimeoutMs / 2), -1);
        }
        assert_int_equal(sim::stats().messages - before, 100);
    }
}

// A message that waits for its receive, signalled or not, is in the way of a probe: that is not death.
void a_slow_peer_is_not_dead(void **)
{
    for (const bool silent : {false, true}) {
        const TurnedHost host;
        RdmaPair pair({.bind_flags = silent ? std::uint64_t{FI_SELECTIVE_COMPLETION} : 0});
        Memory in(pair.b.domain(), 8);
        assert_int_equal(set_timeout(pair.a.ep, FI_OPT_VMA_KEEPALIVE_TIMEOUT, kTimeout), 0);
        assert_int_equal(fi_send(pair.a.ep, "late", 4, nullptr, 0, nullptr), 0);
        assert_int_equal(turn(pair, 20 * kTimeoutMs), -1);
        assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
        assert_int_equal(turn(pair, 20 * kTimeoutMs), -1);
        assert_memory_equal(in.bytes.data(), "late", 4);
    }
}

void a_send_that_takes_too_long_fails(void **)
{
    const TurnedHost host;
    RdmaPair pair;
    assert_int_equal(set_timeout(pair.a.ep, FI_OPT_VMA_SEND_TIMEOUT, kTimeout), 0);
    assert_int_equal(turn(pair, 5 * kTimeoutMs), -1); // nothing to do, nothing too late
    int first = 0;
    int second = 0;
    assert_int_equal(fi_send(pair.a.ep, "x", 1, nullptr, 0, &first), 0); // b has posted no receive
    assert_int_equal(turn(pair, kTimeoutMs / 2), -1);
    assert_int_equal(fi_send(pair.a.ep, "x", 1, nullptr, 0, &second), 0);
    Event event;
    const int after = turn(pair, 10 * kTimeoutMs, &event) + kTimeoutMs / 2;
    assert_int_equal(event.event, FI_SHUTDOWN);
    assert_in_range(after, kTimeoutMs, kTimeoutMs + kTimeoutMs / 4 + 2);
    const fi_cq_err_entry late = error_of(pair.a.cq());
    assert_ptr_equal(late.op_context, &first);
    assert_int_equal(late.err, FI_ETIMEDOUT);
    const fi_cq_err_entry cancelled = error_of(pair.a.cq());
    assert_ptr_equal(cancelled.op_context, &second);
    assert_int_equal(cancelled.err, FI_ECANCELED);
    assert_true(is_quiet(pair.a.cq()));
    assert_true(fi_send(pair.a.ep, "x", 1, nullptr, 0, nullptr) < 0);
}

// Nobody waits for the completion of an injected one, and its failure is told all the same.
void one_without_a_completion_fails_too(void **)
{
    const TurnedHost host;
    RdmaPair pair({.bind_flags = FI_SELECTIVE_COMPLETION});
    assert_int_equal(set_timeout(pair.a.ep, FI_OPT_VMA_SEND_TIMEOUT, kTimeout), 0);
    assert_int_equal(fi_inject(pair.a.ep, "x", 1, 0), 0);
    Event event;
    assert_true(turn(pair, 10 * kTimeoutMs, &event) > 0);
    assert_int_equal(event.event, FI_SHUTDOWN);
    assert_int_equal(error_of(pair.a.cq()).err, FI_ETIMEDOUT);
    assert_true(is_quiet(pair.a.cq()));
}

// A program that has not asked for silence need not expect the entry, which has no context.
void one_that_was_injected_fails_without_an_entry(void **)
{
    const TurnedHost host;
    RdmaPair pair;
    int context = 0;
    assert_int_equal(set_timeout(pair.a.ep, FI_OPT_VMA_SEND_TIMEOUT, kTimeout), 0);
    assert_int_equal(fi_inject(pair.a.ep, "x", 1, 0), 0);
    assert_int_equal(fi_send(pair.a.ep, "y", 1, nullptr, 0, &context), 0);
    Event event;
    assert_true(turn(pair, 10 * kTimeoutMs, &event) > 0);
    assert_int_equal(event.event, FI_SHUTDOWN);
    assert_ptr_equal(error_of(pair.a.cq()).op_context, &context);
    assert_true(is_quiet(pair.a.cq()));
}

// Complete is what the device has completed, whether the program has read it, or will ever hear of it.
void what_is_complete_is_not_late(void **)
{
    for (const bool silent : {false, true}) {
        const TurnedHost host;
        RdmaPair pair({.bind_flags = silent ? std::uint64_t{FI_SELECTIVE_COMPLETION} : 0});
        Memory in(pair.b.domain(), 8);
        assert_int_equal(set_timeout(pair.a.ep, FI_OPT_VMA_SEND_TIMEOUT, kTimeout), 0);
        for (int i = 0; i < 3; ++i) {
            assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
            assert_int_equal(fi_send(pair.a.ep, "x", 1, nullptr, 0, &in), 0);
            assert_int_equal(turn(pair, 5 * kTimeoutMs), -1);
        }
        for (int i = 0; i < 3 && !silent; ++i)
            assert_ptr_equal(entry_of(pair.a.cq()).op_context, &in);
        assert_true(is_quiet(pair.a.cq()));
    }
}

void before_the_connection_and_off_again(void **)
{
    const TurnedHost host;
    RdmaSide a({});
    RdmaSide b({});
    a.ep = a.open(a.net.info.get(), nullptr);
    assert_int_equal(option<std::uint64_t>(a.ep, FI_OPT_VMA_KEEPALIVE_TIMEOUT), 0);
    assert_int_equal(set_timeout(a.ep, FI_OPT_VMA_KEEPALIVE_TIMEOUT, kTimeout), 0);
    assert_int_equal(option<std::uint64_t>(a.ep, FI_OPT_VMA_KEEPALIVE_TIMEOUT), kTimeout);
    assert_int_equal(option<std::uint64_t>(a.ep, FI_OPT_VMA_SEND_TIMEOUT), 0);
    fid_pep *pep = join(a, b);
    const std::uint64_t before = sim::stats().messages;
    const auto pass = [&] {
        for (int i = 0; i < 10; ++i) {
            sim::advance(milliseconds(kTimeoutMs));
            assert_int_equal(a.net.poll().result, -FI_EAGAIN);
        }
    };
    pass();
    const std::uint64_t probed = sim::stats().messages;
    assert_true(probed > before);
    assert_int_equal(set_timeout(a.ep, FI_OPT_VMA_KEEPALIVE_TIMEOUT, 0), 0);
    pass();
    assert_int_equal(sim::stats().messages, probed);
    assert_int_equal(fi_close(&pep->fid), 0);
}

void nonsense_is_refused(void **)
{
    const TurnedHost host;
    RdmaPair pair;
    for (const unsigned name : {FI_OPT_VMA_KEEPALIVE_TIMEOUT, FI_OPT_VMA_SEND_TIMEOUT}) {
        assert_int_equal(set_timeout(pair.a.ep, name, 999), -FI_EINVAL);
        assert_int_equal(set_timeout(pair.a.ep, name, 86'400'000'001), -FI_EINVAL);
        const std::uint32_t half = 1000;
        assert_int_equal(set_option(pair.a.ep, name, half), -FI_EINVAL);
        assert_int_equal(option<std::uint64_t>(pair.a.ep, name), 0);
        assert_int_equal(set_timeout(pair.a.ep, name, 1000), 0);
        assert_int_equal(set_timeout(pair.a.ep, name, 86'400'000'000), 0);
    }
}

// Connection management comes into the domain from other threads now.
void locks_are_needed(void **)
{
    const TurnedHost host;
    RdmaPair pair({.threading = FI_THREAD_DOMAIN});
    assert_false(ofi::domain_of(pair.a.domain()).needs_locks());
    assert_int_equal(set_timeout(pair.a.ep, FI_OPT_VMA_KEEPALIVE_TIMEOUT, kTimeout), 0);
    assert_true(ofi::domain_of(pair.a.domain()).needs_locks());
    assert_false(ofi::domain_of(pair.b.domain()).needs_locks());
}

// In real time: nothing but the time-out wakes them.
void sleepers_are_woken(void **)
{
    for (const bool on_events : {true, false}) {
        const SimulatedHost host({}, sim::Clock::real);
        RdmaPair pair;
        Memory in(pair.a.domain(), 8);
        assert_int_equal(fi_recv(pair.a.ep, in.bytes.data(), 8, in.desc(), 0, &in), 0);
        sim::port_down(0);
        assert_int_equal(set_timeout(pair.a.ep, FI_OPT_VMA_KEEPALIVE_TIMEOUT, 5000), 0);
        if (on_events) {
            std::uint32_t kind = 0;
            fi_eq_cm_entry entry{};
            assert_true(fi_eq_sread(pair.a.net.eq, &kind, &entry, sizeof entry, kPatience, 0) > 0);
            assert_int_equal(kind, FI_SHUTDOWN);
        } else {
            fi_cq_data_entry entry{};
            assert_int_equal(fi_cq_sread(pair.a.cq(), &entry, 1, nullptr, kPatience), -FI_EAVAIL);
            assert_int_equal(error_of(pair.a.cq()).err, FI_ECANCELED);
        }
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_is_gone_is_found),
        cmocka_unit_test(the_device_gives_up_first),
        cmocka_unit_test(an_idle_peer_is_probed_and_stays),
        cmocka_unit_test(traffic_of_either_direction_needs_no_probe),
        cmocka_unit_test(a_slow_peer_is_not_dead),
        cmocka_unit_test(a_send_that_takes_too_long_fails),
        cmocka_unit_test(one_without_a_completion_fails_too),
        cmocka_unit_test(one_that_was_injected_fails_without_an_entry),
        cmocka_unit_test(what_is_complete_is_not_late),
        cmocka_unit_test(before_the_connection_and_off_again),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(locks_are_needed),
        cmocka_unit_test(sleepers_are_woken),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
