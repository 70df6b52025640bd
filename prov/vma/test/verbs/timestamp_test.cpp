// SPDX-License-Identifier: BSD-2-Clause
// Times of completions (FI_VMA_TIMESTAMP): they are the simulated NIC's, whatever its clock and however an entry comes
// to its reader; and who is refused them.
#include "prov/vma/test/verbs/pair.hpp"

#include <thread>

#include "verbs/clock.hpp"
#include "verbs/endpoint.hpp"

using namespace vma;
using namespace vma::test;

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

const PairSetup kStamped = {.cq_flags = FI_VMA_TIMESTAMP};

std::uint64_t nic_now()
{
    return static_cast<std::uint64_t>(sim::now().count());
}

// What a clock of so many kHz makes of the time: its ticks, in ns.
std::uint64_t in_ticks(std::uint64_t ns, std::uint64_t khz)
{
    return ns * khz / 1'000'000 * 1'000'000 / khz;
}

fi_cq_tagged_entry stamped_of(fid_cq *cq)
{
    fi_cq_tagged_entry entry{};
    assert_int_equal(fi_cq_read(cq, &entry, 1), 1);
    return entry;
}

void post_receive(RdmaSide &side, Memory &in, void *context = nullptr)
{
    assert_int_equal(
        fi_recv(side.srx != nullptr ? side.srx : side.ep, in.bytes.data(), in.bytes.size(), in.desc(), 0, context), 0);
}

int compare(fid_cq *cq, void *clocks)
{
    return fi_control(&cq->fid, static_cast<int>(FI_VMA_CLOCKS), clocks);
}

// Each operation at a time of its own, all read together much later.
void one_clock(const char *name, std::uint32_t khz, unsigned bits)
{
    const SimulatedHost host({.name = name, .clock_khz = khz, .clock_bits = bits});
    RdmaPair pair({.tx_size = 1000, .rx_size = 1000, .cq_flags = FI_VMA_TIMESTAMP}); // more than the queue's first size
    Memory mine(pair.a.domain(), 64);
    Memory theirs(pair.b.domain(), 64);
    std::vector<std::uint64_t> at;
    const auto pass_time = [&at] {
        sim::advance(nanoseconds(1'234'567));
        at.push_back(nic_now());
    };
    post_receive(pair.b, theirs, &pair);
    post_receive(pair.b, theirs, &at);
    pass_time();
    assert_int_equal(fi_send(pair.a.ep, mine.bytes.data(), 8, mine.desc(), 0, &mine), 0);
    pass_time();
    assert_int_equal(
        fi_writedata(pair.a.ep, mine.bytes.data(), 16, mine.desc(), 77, 0, theirs.address(), theirs.key(), &theirs), 0);
    pass_time();
    assert_int_equal(fi_read(pair.a.ep, mine.bytes.data(), 32, mine.desc(), 0, theirs.address(), theirs.key(), nullptr),
                     0);
    sim::advance(std::chrono::seconds(10));

    fi_cq_tagged_entry entries[4] = {};
    assert_int_equal(fi_cq_read(pair.a.cq(), entries, 4), 3);
    const std::uint64_t flags[] = {FI_SEND | FI_MSG, FI_WRITE | FI_RMA, FI_READ | FI_RMA};
    const void *contexts[] = {&mine, &theirs, nullptr};
    for (std::size_t i = 0; i < 3; ++i) {
        assert_int_equal(entries[i].tag, in_ticks(at[i], khz));
        assert_int_equal(entries[i].flags, flags[i]);
        assert_ptr_equal(entries[i].op_context, contexts[i]);
    }
    const fi_cq_tagged_entry message = stamped_of(pair.b.cq());
    assert_int_equal(message.tag, in_ticks(at[0], khz));
    assert_ptr_equal(message.op_context, &pair);
    assert_int_equal(message.flags, FI_RECV | FI_MSG);
    assert_int_equal(message.len, 8);
    const fi_cq_tagged_entry write = stamped_of(pair.b.cq());
    assert_int_equal(write.tag, in_ticks(at[1], khz));
    assert_ptr_equal(write.op_context, &at);
    assert_int_equal(write.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    assert_int_equal(write.len, 16);
    assert_int_equal(write.data, 77);

    fi_vma_clocks clocks{};
    assert_int_equal(compare(pair.b.cq(), &clocks), 0);
    assert_int_equal(clocks.nic, in_ticks(nic_now(), khz));
}

void times_are_the_nics(void **)
{
    one_clock("nanoseconds0", 1'000'000, 64);
    one_clock("connectx0", 156'250, 48);
    one_clock("odd0", 322'265, 63);
}

// The host's clock says how often the NIC's has begun anew.
void a_short_clock_goes_on(void **)
{
    const SimulatedHost host({.name = "short0", .clock_bits = 32}); // 4.3 s
    verbs::use_clock([]() noexcept { return nic_now(); });
    {
        RdmaPair pair(kStamped);
        Memory in(pair.b.domain(), 8);
        for (const int ms : {1, 2100, 4200, 1, 4294, 1'000'000, 3000, 3000}) {
            sim::advance(milliseconds(ms));
            const std::uint64_t sent = nic_now();
            post_receive(pair.b, in);
            assert_int_equal(fi_inject(pair.a.ep, "x", 1, 0), 0);
            sim::advance(milliseconds(2100)); // may be beyond the next turn
            assert_int_equal(stamped_of(pair.b.cq()).tag, sent);
            fi_vma_clocks clocks{};
            assert_int_equal(compare(pair.b.cq(), &clocks), 0);
            assert_int_equal(clocks.nic, nic_now());
            assert_int_equal(clocks.monotonic, nic_now());
        }
    }
    verbs::use_clock(nullptr);
}

// Who only asks whether there is something, or reads a counter, puts entries into the list.
void an_entry_that_waits_keeps_its_time(void **)
{
    const SimulatedHost host;
    RdmaPair pair(kStamped);
    Memory in(pair.b.domain(), 8);
    std::uint64_t sent[3];
    for (std::uint64_t &time : sent) {
        sim::advance(milliseconds(5));
        time = nic_now();
        post_receive(pair.b, in);
        assert_int_equal(fi_send(pair.a.ep, "x", 1, nullptr, 0, nullptr), 0);
        sim::advance(milliseconds(5));
        assert_int_equal(fi_cq_read(pair.a.cq(), nullptr, 0), 0);
        verbs::Endpoint::from(pair.b.ep).rx_queue->progress();
    }
    for (const std::uint64_t time : sent) {
        assert_int_equal(stamped_of(pair.a.cq()).tag, time);
        assert_int_equal(stamped_of(pair.b.cq()).tag, time);
    }
}

void errors_have_no_time(void **)
{
    const SimulatedHost host;
    RdmaPair pair(kStamped);
    Memory mine(pair.a.domain(), 8);
    Memory theirs(pair.b.domain(), 8);
    post_receive(pair.b, theirs, &theirs);
    post_receive(pair.b, theirs, &pair);
    sim::advance(milliseconds(3));
    const std::uint64_t sent = nic_now();
    assert_int_equal(fi_send(pair.a.ep, mine.bytes.data(), 8, mine.desc(), 0, nullptr), 0);
    assert_int_equal(
        fi_write(pair.a.ep, mine.bytes.data(), 8, mine.desc(), 0, theirs.address(), theirs.key() + 1, &mine), 0);
    sim::advance(milliseconds(3));
    fi_cq_tagged_entry entries[2] = {};
    fi_cq_err_entry error{};
    assert_int_equal(fi_cq_read(pair.a.cq(), entries, 2), 1);
    assert_int_equal(entries[0].tag, sent);
    assert_int_equal(fi_cq_read(pair.a.cq(), entries, 2), -FI_EAVAIL);
    error.tag = 1;
    assert_int_equal(fi_cq_readerr(pair.a.cq(), &error, 0), 1);
    assert_ptr_equal(error.op_context, &mine);
    assert_int_equal(error.err, FI_EACCES);
    assert_int_equal(error.prov_errno, IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(error.tag, 0);

    const fi_cq_tagged_entry message = stamped_of(pair.b.cq());
    assert_ptr_equal(message.op_context, &theirs);
    assert_int_equal(message.tag, sent);
    assert_int_equal(fi_cq_read(pair.b.cq(), entries, 1), -FI_EAVAIL);
    assert_int_equal(fi_cq_readerr(pair.b.cq(), &error, 0), 1);
    assert_ptr_equal(error.op_context, &pair);
    assert_int_equal(error.err, FI_ECANCELED);
    assert_int_equal(error.tag, 0);
    assert_int_equal(error.olen, 0);
}

// Two connections whose receives are one, in one queue: times go up in it.
void receives_that_endpoints_share(void **)
{
    const SimulatedHost host;
    RdmaPair pair({.shared_receive = true, .cq_flags = FI_VMA_TIMESTAMP});
    const auto [other_a, other_b] = pair.connect_one(nullptr, nullptr);
    Memory in(pair.b.domain(), 8);
    std::uint64_t last = nic_now();
    for (int i = 0; i < 40; ++i) {
        post_receive(pair.b, in);
        sim::advance(nanoseconds(50 + i));
        assert_int_equal(fi_inject(i % 3 == 0 ? other_a : pair.a.ep, "x", 1, 0), 0);
    }
    for (int i = 0; i < 40; ++i) {
        const fi_cq_tagged_entry entry = stamped_of(pair.b.cq());
        last += static_cast<std::uint64_t>(50 + i);
        assert_int_equal(entry.tag, last);
    }
    assert_int_equal(fi_close(&other_a->fid), 0);
    assert_int_equal(fi_close(&other_b->fid), 0);
}

void writes_into_a_region(void **)
{
    const SimulatedHost host;
    RdmaPair pair({.bind_flags = FI_SELECTIVE_COMPLETION, .region = 4096, .cq_flags = FI_VMA_TIMESTAMP});
    for (const std::uint64_t data : {std::uint64_t{5}, ~std::uint64_t{0}}) { // as immediate data, and as a message
        sim::advance(milliseconds(2));
        const std::uint64_t sent = nic_now();
        assert_int_equal(fi_inject_writedata(pair.a.ep, "region", 6, data, 0, 0, FI_VMA_REGION_KEY), 0);
        sim::advance(milliseconds(2));
        const fi_cq_tagged_entry entry = stamped_of(pair.b.cq());
        assert_int_equal(entry.tag, sent);
        assert_int_equal(entry.data, data);
        assert_int_equal(entry.len, 6);
    }
}

// A message in a ring would have no time.
void no_ring_is_used(void **)
{
    ::setenv("FI_VMA_FAST_CONNECTIONS", "8", 1);
    const SimulatedHost host;
    RdmaPair pair({.wait = FI_WAIT_NONE, .cq_flags = FI_VMA_TIMESTAMP});
    ::unsetenv("FI_VMA_FAST_CONNECTIONS");
    Memory in(pair.b.domain(), 8);
    for (int i = 0; i < 200; ++i) {
        sim::advance(nanoseconds(100));
        post_receive(pair.b, in);
        assert_int_equal(fi_send(pair.a.ep, "x", 1, nullptr, 0, nullptr), 0);
        assert_int_equal(stamped_of(pair.b.cq()).tag, nic_now());
        assert_int_equal(stamped_of(pair.a.cq()).tag, nic_now());
    }
}

// On real clocks a time lies between two comparisons, by either clock.
void a_sleeper_gets_the_time_of_the_message(void **)
{
    const SimulatedHost host({}, sim::Clock::real);
    RdmaPair pair(kStamped);
    Memory in(pair.b.domain(), 8);
    for (int i = 0; i < 20; ++i) {
        fi_vma_clocks before{};
        fi_vma_clocks after{};
        assert_int_equal(compare(pair.b.cq(), &before), 0);
        post_receive(pair.b, in);
        std::thread sender([&pair] { assert_int_equal(fi_inject(pair.a.ep, "now", 3, 0), 0); });
        fi_cq_tagged_entry entry{};
        assert_int_equal(fi_cq_sread(pair.b.cq(), &entry, 1, nullptr, -1), 1);
        assert_int_equal(compare(pair.b.cq(), &after), 0);
        sender.join();
        assert_in_range(entry.tag, before.nic, after.nic);
        // The simulated NIC's clock is the host's.
        assert_in_range(entry.tag, before.monotonic - before.within, after.monotonic + after.within);
    }
}

int open_queue(RdmaSide &side, fi_cq_format format, std::uint64_t flags, fid_cq *&cq)
{
    fi_cq_attr attr{};
    attr.format = format;
    attr.flags = flags;
    return fi_cq_open(side.domain(), &attr, &cq, nullptr);
}

void what_is_refused(void **)
{
    const SimulatedHost host;
    RdmaSide side({});
    fid_cq *cq = nullptr;
    for (const fi_cq_format format : {FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA})
        assert_int_equal(open_queue(side, format, FI_VMA_TIMESTAMP, cq), -FI_EINVAL);
    assert_true(sim::fail_call("create_cq_ex", 1, ENOMEM));
    assert_int_equal(open_queue(side, FI_CQ_FORMAT_TAGGED, FI_VMA_TIMESTAMP, cq), -FI_ENOMEM);
    assert_int_equal(open_queue(side, FI_CQ_FORMAT_UNSPEC, FI_VMA_TIMESTAMP, cq), 0);
    assert_int_equal(compare(cq, nullptr), -FI_EINVAL);
    fi_vma_clocks clocks{};
    assert_true(sim::fail_call("query_rt_values", 1, EIO));
    assert_int_equal(compare(cq, &clocks), -FI_EIO);
    assert_int_equal(compare(side.cq(), &clocks), -FI_ENOSYS);
    assert_int_equal(fi_close(&cq->fid), 0);
}

void who_has_no_clock(void **)
{
    fid_cq *cq = nullptr;
    {
        const SimulatedHost host({.name = "timeless0", .clock_khz = 0});
        RdmaSide side({});
        assert_int_equal(open_queue(side, FI_CQ_FORMAT_TAGGED, FI_VMA_TIMESTAMP, cq), -FI_EOPNOTSUPP);
        assert_int_equal(open_queue(side, FI_CQ_FORMAT_TAGGED, 0, cq), 0);
        assert_int_equal(fi_close(&cq->fid), 0);
    }
    const SimulatedHost host;
    assert_true(sim::fail_call("query_rt_values", 1, EOPNOTSUPP)); // some virtual functions can't read it
    RdmaSide side({});
    assert_int_equal(open_queue(side, FI_CQ_FORMAT_TAGGED, FI_VMA_TIMESTAMP, cq), -FI_EOPNOTSUPP);
}

// The same format without the flag: the tag is no time.
void without_the_flag(void **)
{
    const SimulatedHost host;
    RdmaSide a({});
    RdmaSide b({});
    assert_int_equal(fi_close(&a.net.cq->fid), 0);
    assert_int_equal(open_queue(a, FI_CQ_FORMAT_TAGGED, 0, a.net.cq), 0);
    a.ep = a.open(a.net.info.get(), nullptr);
    fid_pep *pep = join(a, b);
    {
        Memory in(b.domain(), 8);
        post_receive(b, in);
        assert_int_equal(fi_send(a.ep, "x", 1, nullptr, 0, &in), 0);
        fi_cq_tagged_entry entry{};
        entry.tag = 1;
        assert_int_equal(fi_cq_read(a.cq(), &entry, 1), 1);
        assert_ptr_equal(entry.op_context, &in);
        assert_int_equal(entry.tag, 0);
    }
    assert_int_equal(fi_close(&a.ep->fid), 0);
    assert_int_equal(fi_close(&b.ep->fid), 0);
    a.ep = b.ep = nullptr;
    assert_int_equal(fi_close(&pep->fid), 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(times_are_the_nics),
        cmocka_unit_test(a_short_clock_goes_on),
        cmocka_unit_test(an_entry_that_waits_keeps_its_time),
        cmocka_unit_test(errors_have_no_time),
        cmocka_unit_test(receives_that_endpoints_share),
        cmocka_unit_test(writes_into_a_region),
        cmocka_unit_test(no_ring_is_used),
        cmocka_unit_test(a_sleeper_gets_the_time_of_the_message),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(who_has_no_clock),
        cmocka_unit_test(without_the_flag),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
