// SPDX-License-Identifier: BSD-2-Clause
// Device memory as the place that is sent from (FI_OPT_VMA_DEVICE_MEMORY), over the simulated NIC.
#include "prov/vma/test/verbs/pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::size_t kLength = 1000; // more than goes inline

// A connected pair, one of which has asked for so much.
struct MemoryPair {
    RdmaSide a{{}};
    RdmaSide b{{}};
    fid_pep *pep = nullptr;

    explicit MemoryPair(std::size_t bytes)
    {
        a.ep = a.open(a.net.info.get(), nullptr);
        assert_int_equal(set(bytes), 0);
        pep = join(a, b);
        assert_int_equal(set(bytes), -FI_EOPBADSTATE);
    }
    ~MemoryPair() { assert_int_equal(fi_close(&pep->fid), 0); }
    MemoryPair(const MemoryPair &) = delete;
    MemoryPair &operator=(const MemoryPair &) = delete;

    int set(std::size_t bytes) { return set_option(a.ep, FI_OPT_VMA_DEVICE_MEMORY, bytes); }
    fi_vma_device_memory statistics() { return option<fi_vma_device_memory>(a.ep, FI_OPT_VMA_DEVICE_MEMORY); }
    // One message each way of counting; it arrives whole.
    void send_one(Memory &out, Memory &in, unsigned seed)
    {
        out.fill(seed);
        assert_int_equal(fi_recv(b.ep, in.bytes.data(), in.bytes.size(), in.desc(), 0, nullptr), 0);
        assert_int_equal(fi_send(a.ep, out.bytes.data(), out.bytes.size(), out.desc(), 0, nullptr), 0);
        assert_int_equal(entry_of(b.cq()).len, out.bytes.size());
        entry_of(a.cq());
        assert_true(out.bytes == in.bytes);
    }
};

void messages_go_from_there(void **)
{
    const SimulatedHost host;
    MemoryPair pair(4096);
    Memory out(pair.a.domain(), kLength);
    Memory in(pair.b.domain(), kLength);
    for (unsigned i = 0; i < 100; ++i)
        pair.send_one(out, in, i); // the end of the memory comes in the middle of some
    const fi_vma_device_memory got = pair.statistics();
    assert_int_equal(got.allocated, 4096);
    assert_int_equal(got.packets, 100);
    assert_int_equal(got.bytes, 100 * kLength);
    assert_int_equal(got.out_of_buffer, 0);
    assert_int_equal(sim::stats().from_dm, 100);
    assert_int_equal(fi_inject(pair.a.ep, "small", 5, 0), 0); // inline: the NIC has it already
    assert_int_equal(pair.statistics().packets, 100);
}

void what_finds_no_room_goes_from_where_it_is(void **)
{
    const SimulatedHost host;
    MemoryPair pair(2 * kLength);
    Memory out(pair.a.domain(), kLength);
    Memory in(pair.b.domain(), kLength);
    out.fill(5);
    for (int i = 0; i < 5; ++i) {
        assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), kLength, in.desc(), 0, nullptr), 0);
        assert_int_equal(fi_send(pair.a.ep, out.bytes.data(), kLength, out.desc(), 0, nullptr), 0);
    }
    assert_int_equal(pair.statistics().packets, 2); // nobody has read a completion
    assert_int_equal(pair.statistics().out_of_buffer, 3);
    for (int i = 0; i < 5; ++i) {
        entry_of(pair.a.cq());
        assert_int_equal(entry_of(pair.b.cq()).len, kLength);
    }
    assert_true(out.bytes == in.bytes);
    pair.send_one(out, in, 6);
    assert_int_equal(pair.statistics().packets, 3);
    Memory large(pair.a.domain(), 3 * kLength);
    Memory place(pair.b.domain(), 3 * kLength);
    pair.send_one(large, place, 7);
    assert_int_equal(pair.statistics().out_of_buffer, 4);
}

void a_device_without_memory_is_no_error(void **)
{
    const SimulatedHost host({.name = "bare0", .dm_size = 0});
    MemoryPair pair(4096);
    Memory out(pair.a.domain(), kLength);
    Memory in(pair.b.domain(), kLength);
    pair.send_one(out, in, 1);
    assert_int_equal(pair.statistics().allocated, 0);
    assert_int_equal(pair.statistics().packets, 0);
    assert_int_equal(sim::stats().from_dm, 0);
}

void nor_is_one_that_has_none_left(void **)
{
    const SimulatedHost host({.dm_size = 8192});
    MemoryPair first(8192);
    MemoryPair second(4096);
    assert_int_equal(first.statistics().allocated, 8192);
    assert_int_equal(second.statistics().allocated, 0);
    Memory out(second.a.domain(), kLength);
    Memory in(second.b.domain(), kLength);
    second.send_one(out, in, 1);
}

void sizes_that_are_none(void **)
{
    const SimulatedHost host;
    RdmaSide side({});
    side.ep = side.open(side.net.info.get(), nullptr);
    for (const std::size_t wrong : {std::size_t{0}, (std::size_t{1} << 20) + 1})
        assert_int_equal(
            fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_DEVICE_MEMORY), &wrong, sizeof wrong),
            -FI_EINVAL);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(messages_go_from_there),
        cmocka_unit_test(what_finds_no_room_goes_from_where_it_is),
        cmocka_unit_test(a_device_without_memory_is_no_error),
        cmocka_unit_test(nor_is_one_that_has_none_left),
        cmocka_unit_test(sizes_that_are_none),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
