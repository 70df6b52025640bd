// SPDX-License-Identifier: BSD-2-Clause
// Rate limits on the verbs device: by the simulated NIC's limiter on its own clock, and in software where it has none.
#include "prov/vma/test/verbs/pair.hpp"

#include <ctime>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

int set_limit(fid_ep *ep, std::uint64_t rate, std::uint32_t burst = 0)
{
    return set_option(ep, FI_OPT_VMA_RATE_LIMIT, fi_vma_rate_limit{rate, burst, 0});
}

// Bytes that arrive within a second of the NIC's time, from a sender that always has something under way.
std::uint64_t bytes_in_a_second(RdmaPair &pair, Memory &out, Memory &in, std::size_t length)
{
    const sim::Ns end = sim::now() + sim::Ns(kSecond);
    std::uint64_t arrived = 0;
    while (sim::now() < end) {
        while (fi_recv(pair.b.ep, in.bytes.data(), in.bytes.size(), in.desc(), 0, nullptr) == 0) {
        }
        while (fi_send(pair.a.ep, out.bytes.data(), length, out.desc(), 0, nullptr) == 0) {
        }
        fi_cq_data_entry entry{};
        while (fi_cq_read(pair.a.cq(), &entry, 1) == 1) {
        }
        while (fi_cq_read(pair.b.cq(), &entry, 1) == 1)
            arrived += entry.len;
        sim::advance(std::min(sim::next_due(), end) - sim::now());
    }
    return arrived;
}

void the_nic_holds_the_rate(void **)
{
    for (const std::uint64_t mbits : {1ULL, 10ULL, 100ULL, 1000ULL, 10000ULL}) {
        const SimulatedHost host;
        RdmaPair pair({.tx_size = 64, .rx_size = 64});
        const std::uint64_t rate = mbits * 125'000;
        const std::size_t length = std::min<std::size_t>(rate / 1000, 65536);
        Memory out(pair.a.domain(), length);
        Memory in(pair.b.domain(), length);
        assert_int_equal(set_limit(pair.a.ep, rate), 0);
        assert_int_equal(option<fi_vma_rate_limit>(pair.a.ep, FI_OPT_VMA_RATE_LIMIT).rate, rate);
        const std::uint64_t arrived = bytes_in_a_second(pair, out, in, length);
        print_message("# %llu Mbit/s: %llu of %llu bytes\n", static_cast<unsigned long long>(mbits),
                      static_cast<unsigned long long>(arrived), static_cast<unsigned long long>(rate));
        assert_in_range(arrived, rate - rate / 50, rate + rate / 50);
        assert_true(sim::stats().paced > 0);
        assert_int_equal(option<std::uint64_t>(pair.a.ep, FI_OPT_VMA_RATE_DUE), 0);
        fi_close(&pair.a.ep->fid);
        fi_close(&pair.b.ep->fid);
        pair.a.ep = pair.b.ep = nullptr;
    }
}

void a_limit_of_before_the_connection_holds(void **)
{
    const SimulatedHost host;
    RdmaSide a({});
    RdmaSide b({});
    a.ep = a.open(a.net.info.get(), nullptr);
    assert_int_equal(set_limit(a.ep, 125'000), 0);
    fid_pep *pep = join(a, b);
    {
        Memory in(b.domain(), 100);
        for (int i = 0; i < 50; ++i) {
            assert_int_equal(fi_recv(b.ep, in.bytes.data(), 100, in.desc(), 0, nullptr), 0);
            assert_int_equal(fi_inject(a.ep, in.bytes.data(), 100, 0), 0);
        }
        assert_true(sim::stats().paced > 0);
        assert_int_equal(fi_close(&a.ep->fid), 0);
        assert_int_equal(fi_close(&b.ep->fid), 0);
        a.ep = b.ep = nullptr;
    }
    assert_int_equal(fi_close(&pep->fid), 0);
}

std::uint64_t now()
{
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * kSecond + static_cast<std::uint64_t>(time.tv_nsec);
}

// Sends until the limit says no; the bytes that went.
std::uint64_t send_all(RdmaPair &pair, Memory &in)
{
    std::uint64_t sent = 0;
    for (int i = 0; i < 1000; ++i) {
        static_cast<void>(fi_recv(pair.b.ep, in.bytes.data(), 100, in.desc(), 0, nullptr));
        const ssize_t result = fi_inject(pair.a.ep, in.bytes.data(), 100, 0);
        fi_cq_data_entry entry{};
        static_cast<void>(fi_cq_read(pair.b.cq(), &entry, 1));
        if (result == -FI_EAGAIN)
            return sent;
        assert_int_equal(result, 0);
        sent += 100;
    }
    UNIT_FAIL("no limit holds");
    return sent;
}

void software_refuses_what_is_not_due(void **)
{
    const SimulatedHost host({.name = "plain0", .rate_max = 0});
    RdmaPair pair;
    Memory in(pair.b.domain(), 100);
    assert_int_equal(set_limit(pair.a.ep, 1000, 3000), 0); // 3 s for a burst
    const std::uint64_t before = now();
    const std::uint64_t sent = send_all(pair, in);
    assert_true(sent >= 100 && sent <= 3000 + (now() - before) * 1000 / kSecond);
    const auto due = option<std::uint64_t>(pair.a.ep, FI_OPT_VMA_RATE_DUE);
    assert_true(due > before && due <= now() + 4 * kSecond);
    assert_int_equal(set_limit(pair.a.ep, 0), 0);
    assert_int_equal(fi_inject(pair.a.ep, in.bytes.data(), 100, 0), 0);
    assert_int_equal(option<std::uint64_t>(pair.a.ep, FI_OPT_VMA_RATE_DUE), 0);
}

// Nothing but its time would wake it: the wait has no end.
void who_was_refused_is_woken_when_it_is_due(void **)
{
    const SimulatedHost host({.name = "plain0", .rate_max = 0}, sim::Clock::real);
    RdmaPair pair;
    Memory in(pair.b.domain(), 100);
    assert_int_equal(set_limit(pair.a.ep, 100'000, 200), 0); // 2 ms for a burst
    fi_cq_data_entry entry{};
    for (int i = 0; i < 5; ++i) {
        send_all(pair, in);
        assert_int_equal(fi_cq_sread(pair.a.cq(), &entry, 1, nullptr, -1), -FI_EAGAIN);
        assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 100, in.desc(), 0, nullptr), 0);
        assert_int_equal(fi_inject(pair.a.ep, in.bytes.data(), 100, 0), 0);
        entry_of(pair.b.cq());
    }
}

// One that the device can't pace to, and one that it refuses to.
void what_the_device_does_not_take_is_kept_in_software(void **)
{
    {
        const SimulatedHost host({.name = "coarse0", .rate_min = 1'000'000});
        RdmaPair pair;
        Memory in(pair.b.domain(), 100);
        assert_int_equal(set_limit(pair.a.ep, 1000, 3000), 0);
        send_all(pair, in);
        assert_int_equal(sim::stats().paced, 0);
    }
    const SimulatedHost host;
    RdmaPair pair;
    Memory in(pair.b.domain(), 100);
    assert_true(sim::fail_call("modify_qp_rate_limit", 1, EOPNOTSUPP));
    assert_int_equal(set_limit(pair.a.ep, 1000, 3000), 0);
    send_all(pair, in);
    assert_int_equal(sim::stats().paced, 0);
}

void nonsense_is_refused(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    const std::uint64_t word = 1000;
    assert_int_equal(set_option(pair.a.ep, FI_OPT_VMA_RATE_LIMIT, word), -FI_EINVAL);
    assert_int_equal(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_RATE_LIMIT), nullptr,
                               sizeof(fi_vma_rate_limit)),
                     -FI_EINVAL);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_nic_holds_the_rate),
        cmocka_unit_test(a_limit_of_before_the_connection_holds),
        cmocka_unit_test(software_refuses_what_is_not_due),
        cmocka_unit_test(who_was_refused_is_woken_when_it_is_due),
        cmocka_unit_test(what_the_device_does_not_take_is_kept_in_software),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
