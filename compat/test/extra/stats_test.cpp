// SPDX-License-Identifier: BSD-2-Clause
// The records of counters: the file's and private ones, their life, the child of a fork, and what is made of numbers
// that lie.
#include "fabtests/unit.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "compat/src/config/params.hpp"
#include "compat/src/stats/region.hpp"
#include "compat/src/stats/region_state.hpp"
#include "compat/src/stats/text.hpp"

using namespace vma::stats;

namespace {

// Nobody captures.
void sent(Slot &slot, std::uint64_t bytes)
{
    vma::stats::sent(slot, bytes, [](const Slot &) {});
}

void received(Slot &slot, std::uint64_t bytes)
{
    vma::stats::received(slot, bytes, [](const Slot &) {});
}

constexpr std::uint32_t kSlots = 3;
std::string g_folder;

std::string file_name()
{
    return g_folder + "/vmastat." + std::to_string(::getpid());
}

Slot &take(int fd)
{
    return claim(fd, IPPROTO_TCP, 4, false);
}

// A copy of the file, as a reader has it.
std::vector<char> read_file()
{
    const int fd = ::open(file_name().c_str(), O_RDONLY | O_CLOEXEC);
    std::vector<char> bytes(file_size(kSlots));
    assert_true(fd >= 0);
    assert_int_equal(::pread(fd, bytes.data(), bytes.size(), 0), bytes.size());
    ::close(fd);
    return bytes;
}

const Slot &slot_at(const std::vector<char> &file, std::size_t place)
{
    return *reinterpret_cast<const Slot *>(file.data() + sizeof(Header) + place * sizeof(Slot));
}

void test_counts_are_in_the_file(void **)
{
    Slot &slot = take(5);
    sent(slot, 10); // before there is a file
    touch();
    assert_true(g_region.published);
    sent(slot, 20);
    received(slot, 7);
    const std::vector<char> file = read_file();
    const auto &h = *reinterpret_cast<const Header *>(file.data());
    assert_true(h.magic == kMagic && h.version == kVersion);
    assert_int_equal(h.pid, ::getpid());
    assert_int_equal(slot_at(file, 0).facts.fd, 5);
    assert_int_equal(slot_at(file, 0).now.tx.packets, 2);
    assert_int_equal(slot_at(file, 0).now.tx.bytes, 30);
    assert_int_equal(slot_at(file, 0).now.rx.bytes, 7);
    assert_int_equal(slot_at(file, 0).now.tx.thread, ::gettid());
    give_back(slot);
}

void test_records_beyond_the_file(void **)
{
    Slot *slots[kSlots + 100];
    int fd = 10;
    for (Slot *&slot : slots) {
        slot = &take(fd++);
        sent(*slot, 1);
    }
    for (std::size_t i = 0; i < std::size(slots); ++i)
        for (std::size_t j = 0; j < i; ++j)
            assert_ptr_not_equal(slots[i], slots[j]);
    const std::vector<char> file = read_file();
    for (std::size_t i = 0; i < kSlots; ++i)
        assert_int_equal(slot_at(file, i).facts.fd, 10 + static_cast<int>(i));
    for (Slot *slot : slots) {
        assert_int_equal(slot->now.tx.packets, 1);
        give_back(*slot);
    }
    assert_int_equal(slot_at(read_file(), 1).facts.fd, -1);
}

// It has nothing of who had it before, and says that it is another socket's.
void test_record_is_taken_again(void **)
{
    Slot &first = take(6);
    const std::uint32_t use = first.facts.use;
    sent(first, 100);
    first.zero = first.now;
    strcpy(first.facts.reason, "old");
    give_back(first);
    Slot &second = take(7);
    assert_ptr_equal(&first, &second);
    assert_int_equal(second.facts.use, use + 1);
    assert_int_equal(second.now.tx.bytes, 0);
    assert_int_equal(second.zero.tx.bytes, 0);
    assert_string_equal(second.facts.reason, "");
    give_back(second);
}

void test_child_counts_apart(void **)
{
    Slot &slot = take(8);
    sent(slot, 1000);
    const pid_t child = ::fork();
    if (child == 0) {
        after_fork_in_child();
        const bool fresh = !g_region.published && slot.now.tx.bytes == 0 && slot.facts.fd == 8;
        sent(slot, 1);
        touch();
        const bool made = g_region.published && slot_at(read_file(), 0).now.tx.bytes == 1;
        remove_file();
        ::_exit(fresh && made && ::access(file_name().c_str(), F_OK) != 0 ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(slot_at(read_file(), 0).now.tx.bytes, 1000);
    give_back(slot);
}

void test_ring_keeps_the_closed(void **)
{
    Slot &slot = take(9);
    use_ring(slot, RingKind::kLocal, "local");
    received(slot, 500);
    give_back(slot);
    assert_int_equal(header().rings[0].rx_bytes, 500);
    Slot &other = take(9);
    assert_int_equal(other.facts.ring, 0);
    for (int i = 0; i < 100; ++i)
        use_ring(other, RingKind::kEthernet, std::to_string(i).c_str()); // more than there is room for
    give_back(other);
}

void test_queues_and_pools(void **)
{
    Queue queues[2] = {};
    for (Queue &queue : queues) {
        queue.used = 1;
        queue.dropped = 5;
        queue.frames = 200;
        queue.pool = 100;
        queue.shortage = 2;
        queue.send_free = 30;
        queue.send_shortage = 1;
    }
    strcpy(queues[1].name, "eth1");
    set_queues(queues, 2);
    const Header &h = header();
    assert_true(h.queues[0].used == 1 && h.queues[1].used == 1 && h.queues[2].used == 0);
    assert_string_equal(h.queues[1].name, "eth1");
    assert_true(h.pools[0].is_rx == 1 && h.pools[0].is_tx == 0 && h.pools[0].size == 200 && h.pools[0].no_buffers == 4);
    assert_true(h.pools[1].is_rx == 0 && h.pools[1].is_tx == 1 && h.pools[1].size == 60 && h.pools[1].no_buffers == 2);
    set_queues(queues, 1); // one port was closed
    assert_true(h.queues[0].used == 1 && h.queues[1].used == 0 && h.pools[0].size == 100);
    queues[0].frames = 0; // no port's
    set_queues(queues, 1);
    assert_true(h.queues[0].used == 1 && h.pools[0].is_rx == 0 && h.pools[1].is_tx == 0 && h.pools[0].size == 0);
    set_queues(nullptr, 0);
    assert_true(h.queues[0].used == 0 && h.pools[0].is_rx == 0 && h.pools[1].is_tx == 0);
}

// Under a limit that holds, and before it.
void test_what_was_paced(void **)
{
    Slot slot = {};
    slot.now.tx.bytes = 1000;
    assert_int_equal(view_of(slot).paced_bytes, 0);
    slot.facts.pacing_rate = 5;
    slot.facts.paced_from = 900;
    assert_int_equal(view_of(slot).paced_bytes, 100);
    slot.now.tx.paced_bytes = 300;
    assert_int_equal(view_of(slot).paced_bytes, 400);
    slot.zero.tx.bytes = 950; // --zero in between
    slot.zero.tx.paced_bytes = 300;
    assert_int_equal(view_of(slot).paced_bytes, 50);
    slot.facts.paced_from = 5000; // a file that lies
    assert_int_equal(view_of(slot).paced_bytes, 0);
}

// Why a socket is the kernel's, as far as what is known of it tells.
void test_why_it_is_the_kernels(void **)
{
    const auto reason = [](auto &&change) {
        Slot slot = {};
        slot.facts.protocol = IPPROTO_TCP;
        slot.now.rx.os_packets = 3;
        slot.now.tx.os_packets = 4;
        change(slot.facts);
        explain_kernel(slot, 32);
        return std::string(slot.facts.reason);
    };
    assert_string_equal(reason([](Facts &) {}).c_str(), "7 sends and receives, VMA_LIFT_AFTER is 32");
    const auto looked_at = [](Facts &f) { f.flags = kCandidate; };
    assert_string_equal(reason(looked_at).c_str(), "no accelerated peer was found");
    const auto datagrams = [](Facts &f) { f.protocol = IPPROTO_UDP; };
    assert_string_equal(reason(datagrams).c_str(), "no accelerated peer was found");
    const auto listens = [](Facts &f) { f.tcp_state = 10; };
    assert_string_equal(reason(listens).c_str(), "it listens");
    const auto another_user = [](Facts &f) { f.flags = kCandidate | kOtherUser, f.peer_user = 33; };
    assert_non_null(strstr(reason(another_user).c_str(), "the other end is user 33's"));
    const auto by_vmad = [](Facts &f) { f.flags = kCandidate | kByVmad; };
    assert_non_null(strstr(reason(by_vmad).c_str(), "vmad introduced nobody"));
    const auto given = [](Facts &f) { f.flags = kByVmad, strcpy(f.reason, "splice"); };
    assert_string_equal(reason(given).c_str(), "splice");
    const auto accelerated = [](Facts &f) { f.way = Way::kLocal; };
    assert_string_equal(reason(accelerated).c_str(), "");
}

// No number that a file can have makes a wrong one, or one below 0.
void test_numbers_that_lie(void **)
{
    Slot slot = {};
    memset(&slot.zero, 0xff, sizeof slot.zero);
    slot.now.rx.bytes = ~std::uint64_t{0};
    const SocketView view = view_of(slot);
    assert_int_equal(view.counters.tx.bytes, 0);
    assert_int_equal(view.queued_bytes, 0);
    memset(&slot, 0xff, sizeof slot);
    slot.facts.fd = 1;
    Text text;
    for (int i = 0; i < 100; ++i)
        describe(view_of(slot), text); // more than there is room for
    assert_true(text.size() < 4096 && text.c_str()[text.size()] == '\0');
    assert_true(percent(0, 0) == 0);
    assert_string_equal(name_of_tcp_state(200), "");
}

void test_end_takes_only_our_file(void **)
{
    assert_int_equal(::rename(file_name().c_str(), (g_folder + "/other").c_str()), 0);
    const int fd = ::open(file_name().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ::close(fd);
    remove_file();
    assert_int_equal(::access(file_name().c_str(), F_OK), 0);
    assert_int_equal(::rename((g_folder + "/other").c_str(), file_name().c_str()), 0);
    remove_file();
    assert_int_not_equal(::access(file_name().c_str(), F_OK), 0);
}

const Closed &closed_in(const std::vector<char> &file)
{
    return reinterpret_cast<const Header *>(file.data())->closed;
}

// A process's totals never fall: what closed sockets and sets have counted is kept, also of records beyond the file.
void test_closed_stay_with_the_process(void **)
{
    const Closed before = closed_in(read_file());
    Slot *slots[kSlots + 2];
    for (Slot *&slot : slots)
        slot = &take(30);
    slots[kSlots + 1]->facts.protocol = IPPROTO_UDP;
    for (Slot *slot : slots) {
        sent(*slot, 10);
        os_received(*slot, 5);
        give_back(*slot);
    }
    Mux &set = claim_set(9);
    set.now.ready = 3;
    give_back(set);
    const Closed now = closed_in(read_file());
    assert_int_equal(now.tcp.tx.bytes - before.tcp.tx.bytes, (kSlots + 1) * 10);
    assert_int_equal(now.tcp.rx.os_bytes - before.tcp.rx.os_bytes, (kSlots + 1) * 5);
    assert_int_equal(now.tcp_sockets - before.tcp_sockets, kSlots + 1);
    assert_int_equal(now.udp.tx.packets - before.udp.tx.packets, 1);
    assert_int_equal(now.udp_sockets - before.udp_sockets, 1);
    assert_int_equal(now.epoll.ready - before.epoll.ready, 3);
    assert_int_equal(now.turn % 2, 0);
    assert_int_not_equal(now.turn, before.turn);
}

// As a reader makes it.
std::uint64_t sent_by(const char *device)
{
    const std::vector<char> file = read_file();
    const Ring *const rings = reinterpret_cast<const Header *>(file.data())->rings;
    for (std::uint32_t place = 0; place < kMostRings; ++place) {
        if (strcmp(rings[place].name, device) != 0)
            continue;
        std::uint64_t sum = rings[place].tx_bytes;
        for (std::uint32_t i = 0; i < kSlots; ++i)
            if (slot_at(file, i).facts.fd >= 0 && slot_at(file, i).facts.ring == place + 1)
                sum += slot_at(file, i).now.tx.bytes;
        return sum;
    }
    return 0;
}

// What a socket has sent by one device does not go with it to another.
void test_ring_keeps_those_that_moved(void **)
{
    Slot &slot = take(31);
    use_ring(slot, RingKind::kLocal, "local");
    sent(slot, 100);
    use_ring(slot, RingKind::kEthernet, "second");
    sent(slot, 7);
    use_ring(slot, RingKind::kEthernet, "second");
    assert_int_equal(sent_by("local"), 100);
    assert_int_equal(sent_by("second"), 7);
    give_back(slot);
    assert_int_equal(sent_by("local"), 100);
    assert_int_equal(sent_by("second"), 7);
}

} // namespace

int main()
{
    char folder[] = "/tmp/stats_test_XXXXXX";
    g_folder = ::mkdtemp(folder);
    ::unsetenv("VMA_STATS_SHMEM_DIR"); // of who runs unit tests: no file
    vma::config::g_params.stats_shmem_dir = g_folder.c_str();
    vma::config::g_params.stats_fd_num = kSlots;
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_are_in_the_file),
        cmocka_unit_test(test_records_beyond_the_file),
        cmocka_unit_test(test_record_is_taken_again),
        cmocka_unit_test(test_child_counts_apart),
        cmocka_unit_test(test_queues_and_pools),
        cmocka_unit_test(test_what_was_paced),
        cmocka_unit_test(test_ring_keeps_those_that_moved),
        cmocka_unit_test(test_ring_keeps_the_closed),
        cmocka_unit_test(test_numbers_that_lie),
        cmocka_unit_test(test_closed_stay_with_the_process),
        cmocka_unit_test(test_end_takes_only_our_file),
        cmocka_unit_test(test_why_it_is_the_kernels),
    };
    const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
    std::filesystem::remove_all(g_folder);
    return failed;
}
