// SPDX-License-Identifier: BSD-2-Clause
// Reliable datagrams, a peer's memory: what is written, read and changed there, what is refused, and who hears of it.
#include "prov/vma/test/rdm/pair.hpp"

#include <algorithm>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint64_t kKey = 77;
constexpr std::size_t kLengths[] = {0, 1, 8, 4096, 8192, 8193, 100000, 1048577};

void to_and_from_memory(const RdmSetup &setup)
{
    OwnDirectory directory;
    Rdm a(setup);
    Rdm b(setup);
    const fi_addr_t to_b = a.insert(b.name);
    std::vector<std::byte> there((std::size_t{1} << 20) + 4096);
    fid_mr *const mr = b.expose(there.data(), there.size(), kKey);
    for (const std::size_t length : kLengths) {
        const std::vector<std::byte> bytes = pattern(length, length + 1);
        REQUIRE(again([&] { return fi_write(a.ep, bytes.data(), length, nullptr, to_b, 100, kKey, &a); },
                      {a.cq, b.cq}) == 0);
        const Entry written = next_of(a.tx_cq, {b.cq});
        REQUIRE(written.error.err == 0 && written.told.op_context == &a);
        assert_int_equal(written.told.flags, FI_RMA | FI_WRITE);
        REQUIRE(std::equal(bytes.begin(), bytes.end(), there.begin() + 100));
        std::vector<std::byte> back(length);
        REQUIRE(again([&] { return fi_read(a.ep, back.data(), length, nullptr, to_b, 100, kKey, &back); },
                      {a.cq, b.cq}) == 0);
        const Entry read = next_of(a.tx_cq, {b.cq});
        REQUIRE(read.error.err == 0 && read.told.op_context == &back);
        assert_int_equal(read.told.flags, FI_RMA | FI_READ);
        REQUIRE(back == bytes);
    }
    assert_int_equal(fi_cntr_read(b.counter), std::size(kLengths));
    assert_true(no_entry(b.cq));
    REQUIRE(fi_close(&mr->fid) == 0);
}

void memory_by_single_copy(void **)
{
    to_and_from_memory({});
}
void memory_through_the_ring(void **)
{
    to_and_from_memory({.single_copy = false});
}
void memory_by_two_queues(void **)
{
    to_and_from_memory({.two_queues = true});
}
void memory_of_other_hosts(void **)
{
    to_and_from_memory({.network = true});
}

// Several parts on both sides, cut at different places.
void several_parts(void **)
{
    for (const bool single_copy : {true, false}) {
        OwnDirectory directory;
        Rdm a({.single_copy = single_copy});
        Rdm b({.single_copy = single_copy});
        const fi_addr_t to_b = a.insert(b.name);
        std::vector<std::byte> there(60000);
        fid_mr *const mr = b.expose(there.data(), there.size(), kKey);
        for (const std::size_t unit : {std::size_t{10}, std::size_t{10000}}) {
            std::vector<std::byte> bytes = pattern(unit * 4, unit);
            const iovec iov[] = {
                {bytes.data(), unit}, {bytes.data() + unit, unit * 2}, {bytes.data() + unit * 3, unit}};
            const fi_rma_iov remote[] = {{0, unit * 3, kKey}, {unit * 4, unit, kKey}};
            fi_msg_rma message{};
            message.msg_iov = iov;
            message.iov_count = 3;
            message.addr = to_b;
            message.rma_iov = remote;
            message.rma_iov_count = 2;
            message.data = 4711;
            REQUIRE(again([&] { return fi_writemsg(a.ep, &message, FI_REMOTE_CQ_DATA); }, {a.cq, b.cq}) == 0);
            assert_int_equal(next_of(a.cq, {b.cq}).error.err, 0);
            REQUIRE(std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(unit * 3), there.begin()));
            REQUIRE(std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(unit * 3), bytes.end(),
                               there.begin() + static_cast<std::ptrdiff_t>(unit * 4)));
            const Entry told = next_of(b.cq);
            assert_int_equal(told.told.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
            assert_int_equal(told.told.data, 4711);
            assert_int_equal(told.told.len, unit * 4);
            assert_null(told.told.op_context);
            std::vector<std::byte> back(unit * 4);
            const iovec in[] = {{back.data(), unit * 2}, {back.data() + unit * 2, unit * 2}};
            message.msg_iov = in;
            message.iov_count = 2;
            REQUIRE(again([&] { return fi_readmsg(a.ep, &message, 0); }, {a.cq, b.cq}) == 0);
            assert_int_equal(next_of(a.cq, {b.cq}).error.err, 0);
            REQUIRE(back == bytes);
        }
        REQUIRE(fi_close(&mr->fid) == 0);
    }
}

void what_is_refused(void **)
{
    for (const bool single_copy : {true, false}) {
        OwnDirectory directory;
        Rdm a({.single_copy = single_copy});
        Rdm b({.single_copy = single_copy});
        const fi_addr_t to_b = a.insert(b.name);
        std::vector<std::byte> there(40000, std::byte{1});
        fid_mr *const mr = b.expose(there.data(), there.size(), kKey, FI_REMOTE_READ);
        std::vector<std::byte> here(20000, std::byte{2});
        struct Case {
            bool write;
            std::uint64_t address;
            std::uint64_t key;
            int error;
        };
        const Case cases[] = {{true, 0, kKey, FI_EACCES},
                              {false, 0, kKey + 1, FI_ENOKEY},
                              {false, 39990, kKey, FI_EINVAL},
                              {true, 0, kKey + 1, FI_ENOKEY},
                              {false, ~std::uint64_t{0} - 3, kKey, FI_EINVAL}};
        for (const Case &one : cases) {
            for (const std::size_t length : {std::size_t{64}, here.size()}) {
                const auto call = [&] {
                    return one.write ? fi_write(a.ep, here.data(), length, nullptr, to_b, one.address, one.key, &a)
                                     : fi_read(a.ep, here.data(), length, nullptr, to_b, one.address, one.key, &a);
                };
                REQUIRE(again(call, {a.cq, b.cq}) == 0);
                const Entry end = next_of(a.cq, {b.cq});
                assert_int_equal(end.error.err, one.error);
                assert_ptr_equal(end.error.op_context, &a);
            }
        }
        REQUIRE(std::all_of(there.begin(), there.end(), [](std::byte byte) { return byte == std::byte{1}; }));
        REQUIRE(fi_close(&mr->fid) == 0);
    }
}

// A write in pieces of which only the first goes beyond what is exposed.
void one_bad_piece_is_told(void **)
{
    OwnDirectory directory;
    Rdm a({.single_copy = false});
    Rdm b({.single_copy = false});
    const fi_addr_t to_b = a.insert(b.name);
    std::vector<std::byte> there(40000);
    fid_mr *const mr = b.expose(there.data(), there.size(), kKey);
    std::vector<std::byte> here(20000, std::byte{2});
    const iovec iov{here.data(), here.size()};
    const fi_rma_iov remote[] = {{50000, 10000, kKey}, {0, 10000, kKey}};
    fi_msg_rma message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = to_b;
    message.rma_iov = remote;
    message.rma_iov_count = 2;
    REQUIRE(again([&] { return fi_writemsg(a.ep, &message, 0); }, {a.cq, b.cq}) == 0);
    assert_int_equal(next_of(a.cq, {b.cq}).error.err, FI_EINVAL);
    // The next one is none the worse for it.
    REQUIRE(again([&] { return fi_write(a.ep, here.data(), 20000, nullptr, to_b, 0, kKey, nullptr); }, {a.cq, b.cq}) ==
            0);
    assert_int_equal(next_of(a.cq, {b.cq}).error.err, 0);
    REQUIRE(fi_close(&mr->fid) == 0);
}

void counts(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = a.insert(b.name);
    std::uint64_t cells[4] = {1, 2, 3, 4};
    fid_mr *const mr = b.expose(cells, sizeof cells, kKey);
    const std::uint64_t add[2] = {10, 20};
    std::uint64_t before[2] = {};
    REQUIRE(fi_atomic(a.ep, add, 2, nullptr, to_b, 8, kKey, FI_UINT64, FI_SUM, &a) == 0);
    const Entry summed = next_of(a.cq, {b.cq});
    REQUIRE(summed.error.err == 0 && summed.told.op_context == &a);
    assert_int_equal(summed.told.flags, FI_ATOMIC | FI_WRITE);
    assert_int_equal(cells[1], 12);
    assert_int_equal(cells[2], 23);
    REQUIRE(fi_fetch_atomic(a.ep, add, 2, nullptr, before, nullptr, to_b, 8, kKey, FI_UINT64, FI_SUM, &a) == 0);
    assert_int_equal(next_of(a.cq, {b.cq}).told.flags, FI_ATOMIC | FI_READ);
    assert_int_equal(before[0], 12);
    assert_int_equal(before[1], 23);
    assert_int_equal(cells[1], 22);
    REQUIRE(fi_fetch_atomic(a.ep, nullptr, 2, nullptr, before, nullptr, to_b, 0, kKey, FI_UINT64, FI_ATOMIC_READ, &a) ==
            0);
    assert_int_equal(next_of(a.cq, {b.cq}).error.err, 0);
    assert_int_equal(before[0], 1);
    assert_int_equal(before[1], 22);
    const std::uint64_t expected[2] = {1, 99};
    const std::uint64_t wanted[2] = {5, 6};
    REQUIRE(fi_compare_atomic(a.ep, wanted, 2, nullptr, expected, nullptr, before, nullptr, to_b, 0, kKey, FI_UINT64,
                              FI_CSWAP, &a) == 0);
    assert_int_equal(next_of(a.cq, {b.cq}).error.err, 0);
    assert_int_equal(cells[0], 5);
    assert_int_equal(cells[1], 22);
    REQUIRE(fi_inject_atomic(a.ep, add, 1, to_b, 24, kKey, FI_UINT64, FI_ATOMIC_WRITE) == 0);
    while (cells[3] != 10)
        REQUIRE(fi_cq_read(b.cq, nullptr, 0) <= 0);
    REQUIRE(fi_atomic(a.ep, add, 2, nullptr, to_b, 24, kKey, FI_UINT64, FI_SUM, &a) == 0);
    assert_int_equal(next_of(a.cq, {b.cq}).error.err, FI_EINVAL);
    assert_int_equal(fi_atomic(a.ep, add, 1, nullptr, to_b, 0, kKey, FI_DOUBLE, FI_BAND, &a), -FI_EOPNOTSUPP);
    REQUIRE(fi_close(&mr->fid) == 0);
}

// Nothing but counters is bound: more is sent than a queue has room for.
void counters_alone(void **)
{
    OwnDirectory directory;
    Rdm a({.queue = false});
    Rdm b({.queue = false});
    const fi_addr_t to_b = a.insert(b.name);
    std::uint64_t got = 0;
    for (std::uint64_t i = 0; i < 5000; ++i) {
        REQUIRE(fi_recv(b.ep, &got, sizeof got, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        ssize_t result;
        while ((result = fi_send(a.ep, &i, sizeof i, nullptr, to_b, nullptr)) == -FI_EAGAIN)
            REQUIRE(fi_cntr_read(a.sends) <= i);
        REQUIRE(result == 0);
        REQUIRE(fi_cntr_wait(b.receives, i + 1, kPatience) == 0 && got == i);
    }
    assert_int_equal(fi_cntr_read(a.sends), 5000);
}

// Two processes count in the memory of a third one.
void nothing_is_counted_twice(void **)
{
    OwnDirectory directory;
    Rdm target;
    std::uint64_t cell = 0;
    fid_mr *const mr = target.expose(&cell, sizeof cell, kKey);
    constexpr std::uint64_t kCounts = 5000;
    const auto count = [&] {
        Rdm me;
        const fi_addr_t there = me.insert(target.name);
        const std::uint64_t one = 1;
        std::uint64_t begun = 0;
        for (std::uint64_t ended = 0; ended < kCounts;) {
            if (begun < kCounts && fi_atomic(me.ep, &one, 1, nullptr, there, 0, kKey, FI_UINT64, FI_SUM, nullptr) == 0)
                ++begun;
            Entry entry;
            if (read_entry(me.cq, entry)) {
                REQUIRE(entry.error.err == 0);
                ++ended;
            }
        }
    };
    pid_t pids[2];
    for (pid_t &pid : pids)
        pid = child(count);
    for (const pid_t pid : pids) {
        int status = 0;
        pid_t ended;
        while ((ended = waitpid(pid, &status, WNOHANG)) == 0)
            REQUIRE(fi_cq_read(target.cq, nullptr, 0) <= 0);
        REQUIRE(ended == pid);
        assert_int_equal(status, 0);
    }
    assert_int_equal(cell, 2 * kCounts);
    REQUIRE(fi_close(&mr->fid) == 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(memory_by_single_copy),
        cmocka_unit_test(memory_through_the_ring),
        cmocka_unit_test(memory_by_two_queues),
        cmocka_unit_test(memory_of_other_hosts),
        cmocka_unit_test(several_parts),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(one_bad_piece_is_told),
        cmocka_unit_test(counters_alone),
        cmocka_unit_test(counts),
        cmocka_unit_test(nothing_is_counted_twice),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
