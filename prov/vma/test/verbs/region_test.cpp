// SPDX-License-Identifier: BSD-2-Clause
// Regions on the verbs device: what libvma.so's streams between hosts are made of, over the simulated NIC.
#include "prov/vma/test/verbs/pair.hpp"

#include <sys/mman.h>

#include "verbs/endpoint.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::size_t kRegion = 65536;
const PairSetup kSetup = {.bind_flags = FI_SELECTIVE_COMPLETION, .region = kRegion};

const unsigned char *region_of(fid_ep *ep)
{
    const auto region = option<fi_vma_region>(ep, FI_OPT_VMA_REGION);
    assert_int_equal(region.len, kRegion);
    assert_int_equal(region.key, FI_VMA_REGION_KEY);
    return static_cast<const unsigned char *>(region.base);
}

ssize_t write_data(fid_ep *ep, const void *bytes, std::size_t length, std::uint64_t data, std::uint64_t offset)
{
    return fi_inject_writedata(ep, bytes, length, data, 0, offset, FI_VMA_REGION_KEY);
}

void bytes_and_data_arrive_together(void **)
{
    const SimulatedHost host;
    RdmaPair pair(kSetup);
    const unsigned char *theirs = region_of(pair.b.ep);
    assert_int_equal(option<std::size_t>(pair.a.ep, FI_OPT_VMA_PEER_REGION), kRegion);
    assert_int_equal(option<std::size_t>(pair.a.ep, FI_OPT_VMA_REGION_INJECT), kRegion);
    std::vector<unsigned char> bytes(kRegion);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<unsigned char>(i * 13);
    const std::uint64_t kData[] = {0, 1, (1ULL << 31) - 1, 1ULL << 31, 0x0123456789abcdef, ~0ULL};
    for (const std::size_t length : {0UL, 1UL, 256UL, 257UL, 32768UL, kRegion}) {
        for (const std::uint64_t data : kData) {
            const std::size_t offset = length == kRegion ? 0 : 77;
            assert_int_equal(write_data(pair.a.ep, bytes.data(), length, data, offset), 0);
            const fi_cq_data_entry entry = entry_of(pair.b.cq());
            assert_ptr_equal(entry.op_context, &pair.b);
            assert_int_equal(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
            assert_int_equal(entry.len, length);
            assert_int_equal(entry.data, data);
            assert_memory_equal(theirs + offset, bytes.data(), length);
            bytes[0] = static_cast<unsigned char>(bytes[0] + 1);
        }
    }
    // What was written can be read back on this side.
    const auto *view = static_cast<const unsigned char *>(option<const void *>(pair.a.ep, FI_OPT_VMA_PEER_VIEW));
    assert_memory_equal(view, theirs, kRegion);
    assert_true(is_quiet(pair.a.cq()) && is_quiet(pair.b.cq()));
}

void small_data_takes_one_message(void **)
{
    const SimulatedHost host;
    RdmaPair pair(kSetup);
    const sim::Stats before = sim::stats();
    assert_int_equal(write_data(pair.a.ep, "x", 1, 7, 0), 0);
    assert_int_equal(sim::stats().sends - before.sends, 1);
    assert_int_equal(write_data(pair.a.ep, "", 0, 1ULL << 40, 0), 0);
    assert_int_equal(sim::stats().sends - before.sends, 2);
    assert_int_equal(write_data(pair.a.ep, "x", 1, 1ULL << 40, 0), 0);
    assert_int_equal(sim::stats().sends - before.sends, 4);
    for (int i = 0; i < 3; ++i)
        entry_of(pair.b.cq());
}

// What was lent of it is read after the end; the device has nothing more to do with it.
void kept_memory_outlives_the_endpoint(void **)
{
    const SimulatedHost host;
    fi_vma_mapping mapping = {};
    const unsigned char *theirs = nullptr;
    std::vector<unsigned char> bytes(kRegion);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<unsigned char>(i * 11);
    {
        RdmaPair pair(kSetup);
        theirs = region_of(pair.b.ep);
        assert_int_equal(write_data(pair.a.ep, bytes.data(), bytes.size(), 1, 0), 0);
        assert_int_equal(entry_of(pair.b.cq()).len, kRegion);
        std::size_t size = sizeof mapping - 1;
        assert_int_equal(
            fi_getopt(&pair.b.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_KEEP_REGION), &mapping, &size),
            -FI_ETOOSMALL);
        mapping = option<fi_vma_mapping>(pair.b.ep, FI_OPT_VMA_KEEP_REGION);
    }
    const auto *const base = static_cast<const unsigned char *>(mapping.base);
    assert_true(theirs >= base && theirs + kRegion <= base + mapping.len);
    assert_memory_equal(theirs, bytes.data(), kRegion);
    assert_int_equal(munmap(mapping.base, mapping.len), 0);
    RdmaPair plain({.bind_flags = FI_SELECTIVE_COMPLETION});
    std::size_t size = sizeof mapping;
    assert_int_equal(
        fi_getopt(&plain.b.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_KEEP_REGION), &mapping, &size),
        -FI_EOPBADSTATE);
}

// A receiver that doesn't look stops the sender, and nothing is lost.
void long_writes_go_from_device_memory(void **)
{
    constexpr std::size_t kMemory = 4096;
    constexpr std::size_t kLength = 1000; // more than goes inline
    const SimulatedHost host;
    PairSetup setup = kSetup;
    setup.device_memory = kMemory;
    RdmaPair pair(setup);
    const unsigned char *theirs = region_of(pair.b.ep);
    std::vector<unsigned char> bytes(2 * kMemory);
    const auto write = [&](std::size_t length, std::uint64_t data) {
        for (std::size_t i = 0; i < length; ++i)
            bytes[i] = static_cast<unsigned char>(i * 7 + data);
        assert_int_equal(write_data(pair.a.ep, bytes.data(), length, data, data), 0);
        assert_int_equal(entry_of(pair.b.cq()).data, data);
        assert_memory_equal(theirs + data, bytes.data(), length);
        assert_true(is_quiet(pair.a.cq()));
    };
    for (std::uint64_t i = 0; i < 200; ++i)
        write(kLength, i); // the memory is used again and again
    write(5, 1000);
    const auto used = option<fi_vma_device_memory>(pair.a.ep, FI_OPT_VMA_DEVICE_MEMORY);
    assert_int_equal(used.allocated, kMemory);
    assert_int_equal(sim::stats().from_dm, used.packets);
    assert_int_equal(used.bytes, used.packets * kLength);
    assert_int_equal(used.packets, 200);
    assert_int_equal(used.out_of_buffer, 0);
    write(bytes.size(), 77); // goes from where it is
    const auto after = option<fi_vma_device_memory>(pair.a.ep, FI_OPT_VMA_DEVICE_MEMORY);
    assert_int_equal(after.out_of_buffer, used.out_of_buffer + 1);
    assert_int_equal(after.packets, used.packets);
}

void the_peer_has_to_look(void **)
{
    const SimulatedHost host;
    RdmaPair pair({.bind_flags = FI_SELECTIVE_COMPLETION, .region = kRegion, .tx_size = 256, .rx_size = 64});
    std::uint64_t sent = 0;
    std::uint64_t seen = 0;
    for (int round = 0; round < 50; ++round) {
        ssize_t result;
        while ((result = write_data(pair.a.ep, &sent, sizeof sent, sent, (sent % 1000) * 8)) == 0)
            ++sent;
        assert_int_equal(result, -FI_EAGAIN);
        assert_true(sent - seen <= 64 && sent > seen);
        assert_int_equal(pair.a.ep->ops->tx_size_left(pair.a.ep), 0);
        while (seen < sent) {
            assert_int_equal(entry_of(pair.b.cq()).data, seen);
            ++seen;
        }
    }
    assert_true(sent > 1000);
    assert_int_equal(sim::stats().rnr_naks, 0);
}

void outside_of_the_region(void **)
{
    const SimulatedHost host;
    RdmaPair pair(kSetup);
    assert_int_equal(write_data(pair.a.ep, "x", 1, 0, kRegion), -FI_EINVAL);
    assert_int_equal(write_data(pair.a.ep, "xy", 2, 0, kRegion - 1), -FI_EINVAL);
    assert_int_equal(write_data(pair.a.ep, "x", 1, 0, ~0ULL), -FI_EINVAL);
    assert_int_equal(write_data(pair.a.ep, "x", 1, 5, kRegion - 1), 0);
    assert_int_equal(entry_of(pair.b.cq()).data, 5);
    // The receives are the notes'.
    char byte = 0;
    assert_int_equal(fi_recv(pair.b.ep, &byte, 1, nullptr, 0, nullptr), -FI_EINVAL);
    assert_int_equal(fi_send(pair.a.ep, &byte, 1, nullptr, 0, nullptr), -FI_EOPNOTSUPP);
}

void one_without_a_region(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    assert_int_equal(write_data(pair.a.ep, "x", 1, 0, 0), -FI_EINVAL);
    assert_int_equal(option<std::size_t>(pair.a.ep, FI_OPT_VMA_PEER_REGION), 0);
}

void options_in_their_time(void **)
{
    const SimulatedHost host;
    RdmaPair pair(kSetup);
    const std::size_t bytes = 4096;
    assert_int_equal(set_option(pair.a.ep, FI_OPT_VMA_REGION, bytes), -FI_EOPBADSTATE);
    fid_ep *fresh = pair.a.open(pair.a.net.info.get(), nullptr);
    std::size_t value = 0;
    std::size_t length = sizeof value;
    assert_int_equal(fi_getopt(&fresh->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_PEER_REGION), &value, &length),
                     -FI_ENOTCONN);
    for (const std::size_t wrong : {std::size_t{0}, (std::size_t{1} << 30) + 1})
        assert_int_equal(set_option(fresh, FI_OPT_VMA_REGION, wrong), -FI_EINVAL);
    assert_int_equal(fi_close(&fresh->fid), 0);
}

// A peer that sends a message of its own making where a note is due.
void a_note_that_is_none(void **)
{
    const SimulatedHost host;
    RdmaPair pair(kSetup);
    auto &liar = *reinterpret_cast<verbs::Endpoint *>(pair.a.ep);
    const std::uint64_t words[2] = {1, kRegion + 1};
    ibv_sge list{.addr = reinterpret_cast<std::uintptr_t>(words), .length = sizeof words, .lkey = 0};
    ibv_send_wr wr{};
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE;
    assert_int_equal(liar.post(wr, {}, 0), 0);
    assert_true(is_quiet(pair.b.cq()));
    assert_int_equal(next_event(pair.b.net, pair.a.net).event, FI_SHUTDOWN);
    assert_int_equal(next_event(pair.a.net, pair.b.net).event, FI_SHUTDOWN);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_data_arrive_together),
        cmocka_unit_test(small_data_takes_one_message),
        cmocka_unit_test(kept_memory_outlives_the_endpoint),
        cmocka_unit_test(long_writes_go_from_device_memory),
        cmocka_unit_test(the_peer_has_to_look),
        cmocka_unit_test(outside_of_the_region),
        cmocka_unit_test(one_without_a_region),
        cmocka_unit_test(options_in_their_time),
        cmocka_unit_test(a_note_that_is_none),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
