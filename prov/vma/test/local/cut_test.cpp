// SPDX-License-Identifier: BSD-2-Clause
// The end of what an endpoint receives (FI_OPT_VMA_CUT): both sides name the same write as the last one, whoever of
// them runs, stops or lies.
#include "fabtests/unit.hpp"

#include <atomic>
#include <thread>

#include "prov/vma/test/local/pair.hpp"

namespace {

using namespace vma::test;

Setup with_region()
{
    Setup setup;
    setup.region = 65536;
    setup.bind_flags = FI_SELECTIVE_COMPLETION;
    return setup;
}

int put(const Side &from, std::uint64_t data, std::size_t length = 0)
{
    static constexpr unsigned char kBytes[256] = {};
    return static_cast<int>(fi_inject_writedata(from.ep, kBytes, length, data, 0, 0, FI_VMA_REGION_KEY));
}

int cut(const Side &side)
{
    return fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_CUT), nullptr, 0);
}

const void *view(const Side &side, int &result)
{
    const void *bytes = nullptr;
    std::size_t length = sizeof bytes;
    result = fi_getopt(&side.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_PEER_VIEW), &bytes, &length);
    return bytes;
}

vma::local::SlotReader &slots_of(const Side &side)
{
    return side.endpoint().receiver.slots;
}

std::uint64_t count_entries(const Side &side, std::uint64_t next = 0)
{
    for (fi_cq_data_entry entry{}; fi_cq_read(side.cq, &entry, 1) == 1; ++next)
        assert_true(entry.data == next);
    return next;
}

void what_came_before_is_taken(void **)
{
    Pair pair(with_region());
    for (std::uint64_t i = 0; i < 5; ++i)
        assert_int_equal(put(pair.a, i, i * 60), 0);
    assert_int_equal(cut(pair.b), 0);
    assert_int_equal(put(pair.a, 5), -FI_ESHUTDOWN);
    assert_int_equal(put(pair.a, 6), -FI_ENOTCONN);
    assert_int_equal(cut(pair.b), 0); // once more says the same
    assert_int_equal(count_entries(pair.b), 5);
    assert_int_equal(put(pair.b, 0), 0); // the other direction goes on
    assert_int_equal(count_entries(pair.a), 1);
}

void calls_that_are_refused(void **)
{
    Side alone(with_region());
    assert_int_equal(cut(alone), -FI_ENOTCONN);
    Pair pair(with_region());
    int value = 1;
    assert_int_equal(
        fi_setopt(&pair.b.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_CUT), &value, sizeof value),
        -FI_EINVAL);
    assert_int_equal(put(pair.a, 0), 0); // nothing was cut
}

// The reader is stopped between its two steps, for ever as far as the writer knows.
void a_stopped_reader_is_not_waited_for(void **)
{
    Pair pair(with_region());
    assert_int_equal(put(pair.a, 0), 0);
    slots_of(pair.b).close();
    assert_int_equal(put(pair.a, 1), 0); // it decides: that one is the last
    assert_int_equal(put(pair.a, 2), -FI_ENOTCONN);
    assert_int_equal(cut(pair.b), 0);
    assert_int_equal(count_entries(pair.b), 2);
}

// The queue makes an endpoint one that it looks at itself, and one that rings, while it is being closed.
void a_queue_does_not_open_it_again(void **)
{
    Pair pair(with_region());
    slots_of(pair.b).close();
    slots_of(pair.b).watch();
    slots_of(pair.b).ask_for_ring();
    assert_int_equal(cut(pair.b), 0);
    assert_int_equal(put(pair.a, 0), -FI_ESHUTDOWN);
}

void a_full_queue_is_read_first(void **)
{
    constexpr std::uint64_t kWrites = 50;
    Setup small = with_region();
    small.cq_size = 8;
    Pair pair(small);
    for (std::uint64_t i = 0; i < kWrites; ++i)
        assert_int_equal(put(pair.a, i), 0);
    std::uint64_t taken = 0;
    int result;
    while ((result = cut(pair.b)) == -FI_EAGAIN)
        taken = count_entries(pair.b, taken);
    assert_int_equal(result, 0);
    assert_int_equal(count_entries(pair.b, taken), kWrites);
    assert_int_equal(put(pair.a, kWrites), -FI_ESHUTDOWN);
}

void what_is_read_back_is_not_cut(void **)
{
    Pair pair(with_region());
    int result = 0;
    assert_int_equal(put(pair.a, 0, 100), 0);
    assert_non_null(view(pair.a, result));
    assert_int_equal(cut(pair.b), -FI_EBUSY);
    assert_int_equal(put(pair.a, 1), 0); // it goes on by this endpoint
    assert_int_equal(count_entries(pair.b), 2);
    assert_int_equal(put(pair.b, 0), 0);
    assert_int_equal(cut(pair.a), 0); // the other direction's end is its own
    assert_null(view(pair.b, result));
    assert_int_equal(result, -FI_ESHUTDOWN);
}

// Nobody posts receives beside a region, and no read of the queue makes room for a message.
void a_message_that_nobody_receives_is_not_waited_for(void **)
{
    for (const bool guests : {false, true}) {
        Setup setup = with_region();
        setup.guests = guests;
        Pair pair(setup);
        assert_int_equal(put(pair.a, 0), 0);
        assert_int_equal(fi_inject(pair.a.ep, "x", 1, 0), 0);
        assert_int_equal(put(pair.a, 1), 0);
        assert_int_equal(cut(pair.b), -FI_ENORX);
        assert_int_equal(count_entries(pair.b), 1);
        assert_int_equal(cut(pair.b), -FI_ENORX);
        char byte = 0;
        assert_int_equal(fi_recv(pair.b.ep, &byte, 1, nullptr, 0, nullptr), 0);
        assert_int_equal(cut(pair.b), 0); // all is taken now
    }
}

// A writer that says that it filled slots which it didn't.
void a_lie_ends_the_connection(void **)
{
    for (const std::uint64_t lie : {UINT64_C(5), UINT64_C(0x7fffffff), UINT64_C(0xffffffff)}) {
        Pair pair(with_region());
        assert_int_equal(put(pair.a, 0), 0);
        slots_of(pair.b).control().cut = vma::local::kCutAt | lie;
        assert_int_equal(cut(pair.b),
                         lie == 0xffffffff ? 0 : -FI_EIO); // before what is there: nothing is taken away by it
        assert_int_equal(count_entries(pair.b), 1);
    }
}

// Writers of all lengths beside a reader that cuts somewhere: as many come as were said to be taken.
void a_race_has_one_answer(void **)
{
    constexpr int kRounds = 400;
    Random random;
    std::size_t in_the_middle = 0;
    for (int round = 0; round < kRounds; ++round) {
        Pair pair(with_region());
        std::atomic<std::uint64_t> accepted{0};
        const std::size_t length = random.below(256);
        std::thread writer([&] {
            for (std::uint64_t i = 0;;) {
                const int result = put(pair.a, i, length);
                if (result == -FI_ESHUTDOWN || result == -FI_ENOTCONN)
                    return;
                REQUIRE(result == 0 || result == -FI_EAGAIN);
                if (result == 0)
                    accepted = ++i;
            }
        });
        std::uint64_t taken = 0;
        const std::uint64_t until = random.below(300);
        while (taken < until)
            taken = count_entries(pair.b, taken);
        int result;
        while ((result = cut(pair.b)) == -FI_EAGAIN)
            taken = count_entries(pair.b, taken);
        assert_int_equal(result, 0);
        in_the_middle += accepted != 0;
        writer.join();
        assert_int_equal(count_entries(pair.b, taken), accepted);
    }
    assert_true(in_the_middle != 0);
}

} // namespace

int main()
{
    const OwnDirectory directory;
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_came_before_is_taken),
        cmocka_unit_test(calls_that_are_refused),
        cmocka_unit_test(a_stopped_reader_is_not_waited_for),
        cmocka_unit_test(a_queue_does_not_open_it_again),
        cmocka_unit_test(a_full_queue_is_read_first),
        cmocka_unit_test(what_is_read_back_is_not_cut),
        cmocka_unit_test(a_lie_ends_the_connection),
        cmocka_unit_test(a_race_has_one_answer),
        cmocka_unit_test(a_message_that_nobody_receives_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
