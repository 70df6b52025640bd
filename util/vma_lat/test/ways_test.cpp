// SPDX-License-Identifier: BSD-2-Clause
// By which way messages went: as it is read from a file of counters, merged, explained by what the other side is, said.
#include "fabtests/unit.hpp"

#include "compat/src/stats/layout.hpp"
#include "util/vma_lat/transport/own_ways.hpp"

#include <netinet/in.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

using namespace vma::lat;
namespace stats = vma::stats;

constexpr std::size_t kSlots = 4;

// A process's file of counters with sockets 5, 6 and 7.
struct Counters {
    std::unique_ptr<stats::Header> header = std::make_unique<stats::Header>();
    std::unique_ptr<stats::Slot[]> slots = std::make_unique<stats::Slot[]>(kSlots);
    std::string path = "/tmp/ways_test_XXXXXX";

    Counters()
    {
        stats::write_sizes(*header, kSlots);
        header->magic = stats::kMagic;
        header->slots_used = kSlots;
        header->lift_after = 32;
        for (std::size_t i = 0; i < kSlots; ++i) {
            slots[i].facts.fd = i < 3 ? static_cast<int>(5 + i) : -1;
            slots[i].facts.protocol = IPPROTO_TCP;
            slots[i].facts.flags = stats::kCandidate;
        }
        close(mkstemp(path.data()));
    }
    Counters(const Counters &) = delete;
    Counters &operator=(const Counters &) = delete;
    ~Counters() { unlink(path.c_str()); }

    stats::Facts &facts(int fd) { return slots[static_cast<std::size_t>(fd - 5)].facts; }
    stats::Counters &now(int fd) { return slots[static_cast<std::size_t>(fd - 5)].now; }

    std::vector<Way> read(const std::vector<int> &sockets) const
    {
        std::FILE *const file = std::fopen(path.c_str(), "we");
        assert_non_null(file);
        std::fwrite(header.get(), sizeof(stats::Header), 1, file);
        std::fwrite(slots.get(), sizeof(stats::Slot), kSlots, file);
        assert_int_equal(std::fclose(file), 0);
        return read_ways(path, sockets);
    }

    std::string text() const
    {
        const auto ways = read({5});
        assert_int_equal(ways.size(), 1);
        return text_of(ways[0]);
    }
};

void is_said(const Counters &counters, const char *wanted)
{
    assert_string_equal(counters.text().c_str(), wanted);
}

void every_way(void **)
{
    Counters counters;
    stats::Facts &f = counters.facts(5);
    f.way = stats::Way::kLocal;
    is_said(counters, "shared memory (same user)");
    f.flags |= stats::kByVmad;
    is_said(counters, "shared memory across network namespaces, introduced by vmad");
    f.flags |= stats::kOtherUser;
    f.peer_user = 33;
    is_said(counters, "shared memory with user 33 across network namespaces, introduced by vmad");
    f.flags = stats::kOtherUser;
    is_said(counters, "shared memory with user 33");
    f.flags = 0;
    f.way = stats::Way::kRdma;
    std::strcpy(f.device, "mlx5_0");
    is_said(counters, "RDMA device mlx5_0");
    f.way = stats::Way::kPort;
    std::strcpy(f.device, "eth0");
    is_said(counters, "Ethernet port eth0");
    f.way = stats::Way::kPinned;
    std::strcpy(f.reason, "splice");
    is_said(counters, "kernel: splice");
    f.way = static_cast<stats::Way>(9);
    is_said(counters, "unknown: splice");
    std::memset(f.reason, 'x', sizeof f.reason); // without an end
    f.way = stats::Way::kPinned;
    assert_int_equal(counters.text().size(), std::strlen("kernel: ") + sizeof f.reason);
}

void reasons_that_are_guessed(void **)
{
    Counters counters;
    counters.now(5).tx.os_packets = 3;
    is_said(counters, "kernel: no accelerated peer was found");
    counters.facts(5).flags = 0;
    is_said(counters, "kernel: 3 sends and receives, VMA_LIFT_AFTER is 32");
    counters.facts(5).flags = stats::kByVmad;
    assert_true(counters.text().starts_with("kernel: vmad introduced nobody"));
}

void bytes_of_the_kernel_are_said(void **)
{
    Counters counters;
    counters.now(5).tx.os_bytes = 100;
    counters.now(5).rx.os_bytes = 20;
    counters.now(5).rx.bytes = 5;
    counters.now(5).tx.bytes = 3;
    counters.facts(5).way = stats::Way::kLocal;
    is_said(counters, "shared memory (same user), 120 of 128 bytes by the kernel");
    counters.facts(5).way = stats::Way::kPinned; // it came back
    std::strcpy(counters.facts(5).reason, "splice");
    is_said(counters, "kernel: splice, 120 of 128 bytes by the kernel");
    counters.now(5).rx.bytes = counters.now(5).tx.bytes = 0; // it never left
    is_said(counters, "kernel: splice");
}

void sockets_that_went_alike_are_one(void **)
{
    Counters counters;
    for (const int fd : {6, 7}) {
        counters.facts(fd).way = stats::Way::kLocal;
        counters.now(fd).tx.bytes = 1000;
    }
    const auto ways = counters.read({5, 6, 7, 8});
    assert_int_equal(ways.size(), 3);
    assert_true(ways[0].carrier == Carrier::kLocal);
    assert_int_equal(ways[0].sockets, 2);
    assert_int_equal(ways[0].bytes, 2000);
    assert_true(ways[1].carrier == Carrier::kKernel);
    assert_string_equal(text_of(ways[2]).c_str(), "unknown: the statistics have no record of it");
}

void there_are_no_more_than_are_listed(void **)
{
    std::vector<Way> ways(3 * kMostWays);
    for (std::size_t i = 0; i < ways.size(); ++i) {
        ways[i].reason = std::to_string(i);
        ways[i].bytes = 1;
    }
    const auto out = merged(ways);
    assert_int_equal(out.size(), kMostWays);
    assert_int_equal(out.back().sockets, 2 * kMostWays + 1);
    std::uint64_t bytes = 0;
    for (const Way &way : out)
        bytes += way.bytes;
    assert_int_equal(bytes, ways.size());
}

// A file that is none, or another version's, is not believed.
void other_files(void **)
{
    Counters counters;
    const auto refused = [&counters] { return counters.text().starts_with("unknown: the statistics are not those"); };
    assert_false(refused());
    const stats::Header good = *counters.header;
    const auto with = [&](auto &&change) {
        *counters.header = good;
        change(*counters.header);
        return refused();
    };
    assert_true(with([](stats::Header &h) { h.magic = 0; }));
    assert_true(with([](stats::Header &h) { h.version += 1; }));
    assert_true(with([](stats::Header &h) { h.header_size -= 8; }));
    assert_true(with([](stats::Header &h) { h.slot_size += 64; }));
    assert_true(with([](stats::Header &h) { h.slot_count = stats::kMostSlots + 1; }));
    assert_true(with([](stats::Header &h) { h.slot_count = h.slots_used = kSlots + 1; })); // more than there are
    assert_string_equal(text_of(read_ways("", {5})[0]).c_str(),
                        "unknown: libvma.so writes no statistics (VMA_STATS_SHMEM_DIR)");
    assert_true(read_ways("", {}).empty());
}

void the_other_side_explains(void **)
{
    Counters counters;
    counters.facts(6).way = stats::Way::kPinned;
    std::strcpy(counters.facts(6).reason, "splice");
    const auto explained = [&counters](const Side &theirs, Kind kind) {
        Side mine;
        mine.library = true;
        mine.user = 33;
        mine.network = 1;
        mine.ways = counters.read({5, 6});
        explain(mine, theirs, kind);
        assert_int_equal(mine.ways.size(), 2);
        assert_string_equal(text_of(mine.ways[1]).c_str(), "kernel: splice"); // was known
        return text_of(mine.ways[0]);
    };
    Side theirs;
    theirs.user = 33;
    theirs.network = 1;
    assert_string_equal(explained(theirs, Kind::kTcp).c_str(), "kernel: the other side has no library");
    theirs.library = true;
    assert_string_equal(explained(theirs, Kind::kUdp).c_str(), "kernel: no accelerated peer was found");
    theirs.user = 34;
    assert_string_equal(explained(theirs, Kind::kTcp).c_str(), "kernel: no accelerated peer was found");
    assert_string_equal(explained(theirs, Kind::kUdp).c_str(), "kernel: datagrams to another user go by the kernel");
    theirs.network = 2;
    assert_string_equal(explained(theirs, Kind::kUdp).c_str(),
                        "kernel: datagrams to another network namespace go by the kernel");
}

void this_process_has_no_library(void **)
{
    const Side side = look_at({3, 4, 5});
    assert_false(side.library);
    assert_int_equal(side.user, geteuid());
    assert_true(side.network != 0);
    assert_int_equal(side.ways.size(), 1);
    assert_int_equal(side.ways[0].sockets, 3);
    assert_string_equal(text_of(side.ways[0]).c_str(), "kernel: libvma.so is not loaded");
    assert_true(look_at({}).ways.empty());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(every_way),
        cmocka_unit_test(reasons_that_are_guessed),
        cmocka_unit_test(bytes_of_the_kernel_are_said),
        cmocka_unit_test(sockets_that_went_alike_are_one),
        cmocka_unit_test(there_are_no_more_than_are_listed),
        cmocka_unit_test(other_files),
        cmocka_unit_test(the_other_side_explains),
        cmocka_unit_test(this_process_has_no_library),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
