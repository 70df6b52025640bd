// SPDX-License-Identifier: BSD-2-Clause
// The doorbell by itself: bits and their order, rings that cross with taking them, the sleeping flag, peers that stop
// or whose eventfd is full. And what is left of a
// domain's objects in a forked child.
#include "fabtests/unit.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <thread>

#include "fabtests/patience.hpp"
#include "local/doorbell.hpp"
#include "prov/vma/test/local/pair.hpp"

namespace {

using namespace vma::test;
using namespace vma::local;

std::shared_ptr<PeerDoorbell> peer_of(const Doorbell &bell, pid_t owner = getpid())
{
    std::shared_ptr<PeerDoorbell> peer;
    REQUIRE(open_peer_doorbell({owner, 0}, vma::core::duplicate_fd(bell.memory_fd()),
                               vma::core::duplicate_fd(bell.wake_fd()), peer) == 0);
    return peer;
}

bool readable(const Doorbell &bell, int milliseconds)
{
    pollfd wait{bell.wake_fd(), POLLIN, 0};
    return poll(&wait, 1, milliseconds) == 1;
}

void bits_are_dense_and_reused(void **)
{
    Doorbell bell;
    assert_int_equal(bell.open(), 0);
    for (int i = 0; i < static_cast<int>(kDoorbellBits); ++i)
        assert_int_equal(bell.allocate_bit(), i);
    assert_int_equal(bell.allocate_bit(), -1);
    for (const std::uint32_t bit : {5U, 64U, 65535U})
        bell.free_bit(bit);
    for (const int bit : {5, 64, 65535, -1})
        assert_int_equal(bell.allocate_bit(), bit);
}

void each_ring_is_found_once(void **)
{
    Doorbell bell;
    assert_int_equal(bell.open(), 0);
    for (std::uint32_t i = 0; i < kDoorbellBits; ++i)
        (void)bell.allocate_bit();
    const auto peer = peer_of(bell);
    assert_ptr_equal(peer_of(bell).get(), peer.get()); // one mapping a process
    assert_false(bell.rung());
    std::vector<std::uint32_t> seen;
    const auto note = [&seen](std::uint32_t bit) { seen.push_back(bit); };
    const std::uint32_t bits[] = {0, 1, 63, 64, 4095, 4096, 65535};
    for (const std::uint32_t bit : bits) {
        peer->ring(bit);
        peer->ring(bit);
    }
    assert_true(bell.rung());
    bell.collect(note);
    assert_int_equal(seen.size(), std::size(bits));
    assert_memory_equal(seen.data(), bits, sizeof bits);
    assert_false(bell.rung());
    assert_false(readable(bell, 0)); // nobody slept
}

void one_sleep_is_one_wake(void **)
{
    Doorbell bell;
    assert_int_equal(bell.open(), 0);
    (void)bell.allocate_bit();
    const auto peer = peer_of(bell);
    bell.arm();
    peer->ring(0);
    peer->ring(0);
    assert_true(readable(bell, 0));
    assert_true(bell.drain());
    assert_false(bell.drain());
    assert_false(bell.disarm()); // the peer has written
    bell.arm();
    assert_true(bell.disarm());
    peer->ring(0);
    assert_false(readable(bell, 0));
}

int g_written = -1; // the child's copy of the eventfd

// The child's write() ends up here: it stops, and goes on with the same by another call.
void stop_before_writing(int)
{
    std::uint64_t one = 1;
    const iovec part{&one, sizeof one};
    raise(SIGSTOP);
    REQUIRE(writev(g_written, &part, 1) == sizeof one);
}

void trap_writes()
{
    REQUIRE(signal(SIGSYS, stop_before_writing) != SIG_ERR);
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// Runs a child, which rings bit 0, up to the point where it is about to write the eventfd.
pid_t ringer_before_its_write(const Doorbell &bell)
{
    const int memory = dup(bell.memory_fd()); // the doorbell's own are closed in a child
    g_written = dup(bell.wake_fd());
    const pid_t child = fork();
    if (child == 0) {
        std::shared_ptr<PeerDoorbell> peer;
        REQUIRE(open_peer_doorbell({getppid(), 0}, vma::core::UniqueFd(memory), vma::core::duplicate_fd(g_written),
                                   peer) == 0);
        trap_writes();
        peer->ring(0);
        _exit(0);
    }
    close(memory);
    close(g_written);
    int status = 0;
    REQUIRE(waitpid(child, &status, WUNTRACED) == child);
    REQUIRE(WIFSTOPPED(status)); // else it has rung without a write
    return child;
}

void end_of(pid_t child, int signal)
{
    int status = 0;
    REQUIRE(kill(child, signal) == 0);
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(signal == SIGKILL ? WIFSIGNALED(status) : WIFEXITED(status));
}

// A peer that is stopped with its write still to do, and killed then, or goes on much later: who rings meanwhile wakes
// the sleeper, and neither leaves something behind that ends each later sleep.
void a_peer_that_stops_before_its_write(void **)
{
    for (const bool killed : {true, false}) {
        Doorbell bell;
        assert_int_equal(bell.open(), 0);
        (void)bell.allocate_bit();
        (void)bell.allocate_bit();
        bell.arm();
        const pid_t child = ringer_before_its_write(bell);
        assert_false(readable(bell, 0));
        const auto peer = peer_of(bell);
        peer->ring(1);
        assert_true(readable(bell, 0));
        assert_false(bell.disarm());
        assert_true(bell.drain());
        assert_true(bell.readable()); // it may still come
        bell.arm();
        assert_false(readable(bell, 0));
        end_of(child, killed ? SIGKILL : SIGCONT);
        assert_int_equal(readable(bell, 0), !killed);
        if (!killed) {
            (void)bell.disarm();
            assert_true(bell.drain());
            assert_false(bell.readable());
            bell.arm();
        }
        assert_false(readable(bell, 0));
        peer->ring(1);
        assert_true(readable(bell, 0));
    }
}

// An eventfd that is full, and whose owner has made it one that blocks: the ring returns, and the sleeper is awake, as
// it is readable. And an empty one that a peer has made so: its owner doesn't wait there.
void an_eventfd_that_blocks(void **)
{
    Doorbell bell;
    assert_int_equal(bell.open(), 0);
    (void)bell.allocate_bit();
    const auto peer = peer_of(bell);
    const std::uint64_t most = ~UINT64_C(0) - 1;
    assert_int_equal(write(bell.wake_fd(), &most, sizeof most), sizeof most);
    assert_int_equal(fcntl(bell.wake_fd(), F_SETFL, 0), 0);
    alarm(static_cast<unsigned>(patience::seconds())); // what blocks here blocks for ever
    bell.arm();
    errno = EDOM;
    peer->ring(0);
    assert_int_equal(errno, EDOM);
    assert_true(readable(bell, 0));
    assert_true(bell.rung());
    assert_int_equal(fcntl(bell.wake_fd(), F_SETFL, 0), 0);
    assert_true(bell.drain());
    assert_false(bell.drain());
    alarm(0);
}

// A value that was stored before the ring must be seen by who takes the bit, however the two cross; and who sleeps with
// nothing rung is woken.
void rings_that_cross(void **)
{
    constexpr std::uint32_t kBells = 3;
    constexpr std::uint64_t kRings = 60'000;
    Doorbell bell;
    assert_int_equal(bell.open(), 0);
    for (std::uint32_t i = 0; i < kBells; ++i)
        (void)bell.allocate_bit();
    std::atomic<std::uint64_t> values[kBells] = {};
    std::vector<std::thread> peers;
    for (std::uint32_t i = 0; i < kBells; ++i) {
        peers.emplace_back([&, i] {
            const auto peer = peer_of(bell);
            Random random(i);
            for (std::uint64_t ring = 1; ring <= kRings; ++ring) {
                values[i].store(ring, std::memory_order_release);
                vma::core::full_fence();
                peer->ring(i);
                if (random.below(500) == 0)
                    std::this_thread::sleep_for(std::chrono::microseconds(random.below(100)));
            }
        });
    }
    std::uint64_t seen[kBells] = {};
    while (seen[0] + seen[1] + seen[2] < kBells * kRings) {
        const auto look = [&](std::uint32_t bit) { seen[bit] = values[bit].load(std::memory_order_acquire); };
        bell.collect(look);
        bell.arm();
        if (!bell.rung() && seen[0] + seen[1] + seen[2] < kBells * kRings)
            assert_true(readable(bell, patience::milliseconds()));
        (void)bell.disarm();
        (void)bell.drain();
    }
    for (std::thread &peer : peers)
        peer.join();
}

// The child may close what it inherited, and must not disturb the parent by it.
void objects_in_a_forked_child(void **)
{
    Setup setup;
    setup.region = 4096;
    setup.shared_receive = true;
    Pair pair(setup);
    char memory[16];
    fid_mr *mr = nullptr;
    fid_cntr *counter = nullptr;
    assert_int_equal(fi_mr_reg(pair.a.domain, memory, sizeof memory, FI_REMOTE_READ, 0, 1, 0, &mr, nullptr), 0);
    assert_int_equal(fi_cntr_open(pair.a.domain, nullptr, &counter, nullptr), 0);
    const pid_t child = fork();
    if (child == 0) {
        fi_cq_data_entry entry;
        REQUIRE(fi_cq_sread(pair.a.cq, &entry, 1, nullptr, 0) == -FI_EOPBADSTATE);
        REQUIRE(fi_cq_signal(pair.a.cq) == -FI_EOPBADSTATE);
        for (struct fid *fid : {&mr->fid, &counter->fid, &pair.a.ep->fid, &pair.a.srx->fid, &pair.a.cq->fid,
                                &pair.a.domain->fid, &pair.a.fabric->fid})
            REQUIRE(fi_close(fid) == 0);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(fi_inject_writedata(pair.a.ep, "on", 3, 9, 0, 0, FI_VMA_REGION_KEY), 0);
    assert_true(next_entry(pair.b.cq).data == 9);
    assert_int_equal(fi_inject_writedata(pair.b.ep, nullptr, 0, 8, 0, 0, FI_VMA_REGION_KEY), 0);
    assert_true(next_entry(pair.a.cq).data == 8);
    assert_int_equal(fi_close(&mr->fid), 0);
    assert_int_equal(fi_close(&counter->fid), 0);
}

// What its parent had mapped it hasn't, and no handler of fork() has told anybody that it is another process.
void a_child_by_number_maps_its_own(void **)
{
    Doorbell bell;
    assert_int_equal(bell.open(), 0);
    const auto bit = static_cast<std::uint32_t>(bell.allocate_bit());
    const pid_t owner = getpid();
    const std::shared_ptr<PeerDoorbell> parents = peer_of(bell, owner);
    const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    if (child == 0) {
        peer_of(bell, owner)->ring(bit);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(bell.rung());
    assert_ptr_equal(peer_of(bell, owner).get(), parents.get());
}

} // namespace

int main()
{
    const OwnDirectory directory;
    const CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_dense_and_reused), cmocka_unit_test(each_ring_is_found_once),
        cmocka_unit_test(one_sleep_is_one_wake),     cmocka_unit_test(rings_that_cross),
        cmocka_unit_test(objects_in_a_forked_child), cmocka_unit_test(a_peer_that_stops_before_its_write),
        cmocka_unit_test(an_eventfd_that_blocks),    cmocka_unit_test(a_child_by_number_maps_its_own),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
