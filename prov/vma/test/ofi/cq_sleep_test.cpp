// SPDX-License-Identifier: BSD-2-Clause
// Completion queues: every way to sleep and to be woken. A lost wake-up fails the test after some seconds instead of
// hanging it.
#include "fabtests/unit.hpp"

#include <atomic>
#include <chrono>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "fabtests/patience.hpp"
#include "prov/vma/test/local/pair.hpp"

namespace {

using namespace vma::test;

const int kTooLong = patience::milliseconds();

int trywait(fid_cq *cq)
{
    auto &queue = vma::ofi::cq_of(cq);
    return queue.trywait(queue);
}

int wait_fd(fid_cq *cq)
{
    int fd = -1;
    REQUIRE(fi_control(&cq->fid, FI_GETWAIT, &fd) == 0);
    return fd;
}

enum class Way { sread, descriptor, counted };

// Waits for one entry, sleeping now and then.
fi_cq_data_entry sleepy_entry(fid_cq *cq, Way way, Random &random)
{
    fi_cq_data_entry entry{};
    for (std::size_t spin = random.below(3) * random.below(2000); spin; --spin) {
        const ssize_t got = fi_cq_read(cq, &entry, 1);
        if (got == 1)
            return entry;
        REQUIRE(got == -FI_EAGAIN);
    }
    if (way == Way::sread) {
        REQUIRE(fi_cq_sread(cq, &entry, 1, nullptr, kTooLong) == 1);
        return entry;
    }
    for (;;) {
        if (trywait(cq) == 0) {
            pollfd wait{wait_fd(cq), POLLIN, 0};
            REQUIRE(poll(&wait, 1, kTooLong) == 1);
        }
        const ssize_t got = fi_cq_read(cq, &entry, 1);
        if (got == 1)
            return entry;
        REQUIRE(got == -FI_EAGAIN);
    }
}

void ping_pong(Side &side, Way way, bool first, int rounds, bool large)
{
    Random random(static_cast<std::uint64_t>(first) + 77);
    std::vector<char> buffer(large ? 50'000 : 8);
    for (int i = 0; i < rounds; ++i) {
        const auto send = [&] {
            while (fi_send(side.ep, buffer.data(), buffer.size(), nullptr, 0, nullptr) == -FI_EAGAIN) {
            }
        };
        bool sent = false;
        bool received = false;
        REQUIRE(fi_recv(side.ep, buffer.data(), buffer.size(), nullptr, 0, nullptr) == 0);
        if (first)
            send();
        while (!sent || !received) {
            const fi_cq_data_entry entry = sleepy_entry(side.cq, way, random);
            if (entry.flags & FI_RECV) {
                received = true;
                if (!first)
                    send();
            } else {
                sent = true;
            }
        }
    }
}

// Each wake-up may be the one that is lost: two processes, small messages, and large ones whose sender sleeps until
// they were pulled.
void two_processes_sleep(void **)
{
    for (const Way way : {Way::sread, Way::descriptor}) {
        for (const bool large : {false, true}) {
            int sockets[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
            const pid_t parent = getpid();
            const pid_t child = fork();
            const bool first = child != 0;
            {
                Setup setup;
                Side side(setup);
                REQUIRE(fi_enable(side.ep) == 0);
                join_over(sockets[first], side, first ? child : parent, true);
                ping_pong(side, way, first, 3000, large);
            }
            if (!first)
                _exit(0);
            int status = -1;
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_int_equal(status, 0);
            close(sockets[0]);
            close(sockets[1]);
        }
    }
}

// Several threads sleep on one queue and share its entries; each entry is read by exactly one of them.
void many_threads_sleep_on_one_queue(void **)
{
    constexpr std::uint64_t kCount = 5000;
    constexpr std::size_t kReaders = 4;
    for (const Way way : {Way::sread, Way::descriptor, Way::counted}) {
        Pair pair;
        std::atomic<std::uint32_t> asleep{0};
        if (way == Way::counted)
            assert_int_equal(fi_control(&pair.b.cq->fid, static_cast<int>(FI_VMA_SLEEPERS), &asleep), 0);
        std::atomic<std::uint64_t> received{0};
        std::atomic<std::uint64_t> sum{0};
        std::vector<std::thread> readers;
        readers.reserve(kReaders);
        for (std::size_t i = 0; i < kReaders; ++i) {
            readers.emplace_back([&, way] {
                while (received.load() < kCount) {
                    fi_cq_data_entry entry{};
                    ssize_t got = 0;
                    if (way == Way::sread) {
                        got = fi_cq_sread(pair.b.cq, &entry, 1, nullptr, kTooLong);
                    } else {
                        ++asleep;
                        if (trywait(pair.b.cq) == 0) {
                            pollfd wait{wait_fd(pair.b.cq), POLLIN, 0};
                            REQUIRE(poll(&wait, 1, kTooLong) == 1);
                        }
                        --asleep;
                        got = fi_cq_read(pair.b.cq, &entry, 1);
                    }
                    if (got == 1 && entry.data != 0) {
                        sum += entry.data;
                        ++received;
                    }
                }
                // The others sleep for ever now, but for this.
                while (fi_inject_writedata(pair.a.ep, nullptr, 0, 0, 0, 0, FI_VMA_REGION_KEY) == -FI_EAGAIN &&
                       received.load() < kCount) {
                }
            });
        }
        Random random(1);
        for (std::uint64_t i = 1; i <= kCount;) {
            if (fi_inject_writedata(pair.a.ep, nullptr, 0, i, 0, 0, FI_VMA_REGION_KEY) == 0)
                ++i;
            if (random.below(20) == 0)
                std::this_thread::sleep_for(std::chrono::microseconds(random.below(200)));
        }
        for (std::thread &reader : readers)
            reader.join();
        assert_true(received.load() == kCount);
        assert_true(sum.load() == kCount * (kCount + 1) / 2);
    }
}

// A thread that slept and one that read would else make each read of the only one that is left write its own
// descriptor.
void who_counts_sleepers_is_not_woken_for_nothing(void **)
{
    Pair pair;
    std::uint32_t asleep = 0;
    assert_int_equal(fi_control(&pair.b.cq->fid, static_cast<int>(FI_VMA_SLEEPERS), nullptr), -FI_EINVAL);
    assert_int_equal(fi_control(&pair.b.cq->fid, static_cast<int>(FI_VMA_SLEEPERS), &asleep), 0);
    pollfd wait{wait_fd(pair.b.cq), POLLIN, 0};
    fi_cq_data_entry entry{};
    const auto read_elsewhere = [&] {
        std::thread([&] { REQUIRE(fi_cq_read(pair.b.cq, &entry, 1) == -FI_EAGAIN); }).join();
        return poll(&wait, 1, 0) == 1;
    };
    while (trywait(pair.b.cq) != 0) // the bell of the beginning
        assert_int_equal(fi_cq_read(pair.b.cq, &entry, 1), -FI_EAGAIN);
    assert_false(read_elsewhere());
    asleep = 1;
    assert_int_equal(trywait(pair.b.cq), 0);
    assert_true(read_elsewhere()); // who sleeps is to arm it again
    assert_int_equal(trywait(pair.b.cq), 0);
    asleep = 0;
    assert_false(read_elsewhere());
}

// Whoever sleeps at the endpoint's place is woken there, without the descriptor; who sleeps at another one is not.
void threads_sleep_at_places(void **)
{
    Setup setup;
    setup.region = 4096;
    Pair pair(setup);
    const std::uint32_t asleep = 0;
    fi_vma_places places{};
    std::uint32_t at = 0;
    std::size_t size = sizeof at;
    assert_int_equal(
        fi_control(&pair.b.cq->fid, static_cast<int>(FI_VMA_SLEEPERS), const_cast<std::uint32_t *>(&asleep)), 0);
    assert_int_equal(fi_control(&pair.b.cq->fid, static_cast<int>(FI_VMA_PLACES), nullptr), -FI_EINVAL);
    assert_int_equal(fi_control(&pair.b.cq->fid, static_cast<int>(FI_VMA_PLACES), &places), 0);
    assert_int_equal(fi_getopt(&pair.b.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_PLACE), &at, &size), 0);
    assert_true(at < places.count);
    fi_vma_place &own = places.places[at];
    fi_vma_place &other = places.places[(at + 1) % places.count];
    const std::uint32_t other_turn = other.turn;
    pollfd wait{wait_fd(pair.b.cq), POLLIN, 0};
    fi_cq_data_entry entry{};
    constexpr std::uint64_t kOneSleep = (std::uint64_t{1} << 32) + 1;
    const timespec limit{kTooLong / 1000, 0};
    __atomic_fetch_add(&other.asleep, kOneSleep, __ATOMIC_SEQ_CST);
    for (int round = 0; round < 2000; ++round) {
        std::thread sleeper([&] {
            for (bool received = false; !received;) {
                const std::uint32_t turn = __atomic_load_n(&own.turn, __ATOMIC_SEQ_CST);
                __atomic_fetch_add(&own.asleep, kOneSleep, __ATOMIC_SEQ_CST);
                if (trywait(pair.b.cq) == 0)
                    REQUIRE(syscall(SYS_futex, &own.turn, FUTEX_WAIT, turn, &limit, nullptr, 0) == 0 ||
                            errno == EAGAIN);
                __atomic_fetch_sub(&own.asleep, 1, __ATOMIC_SEQ_CST);
                received = fi_cq_read(pair.b.cq, &entry, 1) == 1;
            }
        });
        if (round % 2 != 0) // now and then it sleeps already
            std::this_thread::yield();
        assert_int_equal(
            fi_inject_writedata(pair.a.ep, nullptr, 0, static_cast<std::uint64_t>(round), 0, 0, FI_VMA_REGION_KEY), 0);
        sleeper.join();
        assert_int_equal(entry.data, round);
        assert_int_equal(poll(&wait, 1, 0), 0);
    }
    assert_int_equal(other.turn, other_turn);
}

// A thread that only spins must not take the wake-ups of one that sleeps.
void a_spinning_and_a_sleeping_thread(void **)
{
    constexpr std::uint64_t kCount = 3000;
    Pair pair;
    std::atomic<std::uint64_t> received{0};
    std::thread sleeper([&] {
        while (received.load() < kCount) {
            fi_cq_data_entry entry{};
            if (fi_cq_sread(pair.b.cq, &entry, 1, nullptr, kTooLong) == 1)
                ++received;
        }
    });
    Random random(2);
    for (std::uint64_t i = 0; i < kCount;) {
        if (fi_inject_writedata(pair.a.ep, nullptr, 0, i, 0, 0, FI_VMA_REGION_KEY) == 0)
            ++i;
        if (random.below(10) == 0) {
            for (std::size_t spin = random.below(100); spin; --spin) {
                fi_cq_data_entry entry{};
                if (fi_cq_read(pair.b.cq, &entry, 1) == 1)
                    ++received;
            }
        }
        if (random.below(30) == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(random.below(300)));
    }
    for (int i = 0; received.load() < kCount; ++i) {
        assert_true(i < kTooLong); // without another read of ours
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    assert_int_equal(fi_cq_signal(pair.b.cq), 0);
    sleeper.join();
}

void posting_a_receive_wakes_a_sleeper(void **)
{
    Pair pair;
    for (int round = 0; round < 200; ++round) {
        assert_int_equal(fi_inject(pair.a.ep, &round, sizeof round, 0), 0);
        int in = -1;
        std::thread sleeper([&] {
            fi_cq_data_entry entry{};
            REQUIRE(fi_cq_sread(pair.b.cq, &entry, 1, nullptr, kTooLong) == 1);
        });
        if (round % 2)
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        assert_int_equal(fi_recv(pair.b.ep, &in, sizeof in, nullptr, 0, nullptr), 0);
        sleeper.join();
        assert_int_equal(in, round);
    }
}

// The sender finds no slot, sleeps, and is woken as the receiver goes on.
void a_starved_sender_sleeps(void **)
{
    constexpr std::uint64_t kCount = 20'000;
    Pair pair;
    std::thread receiver([&pair] {
        Random random(3);
        fi_cq_data_entry entries[64];
        for (std::uint64_t received = 0; received < kCount;) {
            const std::size_t wanted = 1 + random.below(64);
            const ssize_t got = fi_cq_read(pair.b.cq, entries, wanted);
            for (ssize_t i = 0; i < got; ++i)
                REQUIRE(entries[i].data == received++);
            if (random.below(20) == 0)
                std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    });
    for (std::uint64_t i = 0; i < kCount;) {
        if (fi_inject_writedata(pair.a.ep, nullptr, 0, i, 0, 0, FI_VMA_REGION_KEY) == 0) {
            ++i;
            continue;
        }
        fi_cq_data_entry entry;
        assert_int_equal(fi_cq_read(pair.a.cq, &entry, 1), -FI_EAGAIN);
        if (trywait(pair.a.cq) == 0) {
            pollfd wait{wait_fd(pair.a.cq), POLLIN, 0};
            assert_int_equal(poll(&wait, 1, kTooLong), 1);
        }
    }
    receiver.join();
}

// Until a thread may sleep on the empty queue, which may have been rung for already.
void arm(fid_cq *cq)
{
    for (int tries = 0; trywait(cq) != 0; ++tries) {
        fi_cq_data_entry entry{};
        assert_true(tries < 10);
        assert_int_equal(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
    }
}

// libfabric's own waits ask fi_trywait(), read once more, and then sleep. What is read meanwhile may be nothing for the
// queue.
void an_empty_read_leaves_the_queue_armed(void **)
{
    Setup setup;
    setup.region = 4096;
    Pair pair(setup);
    pollfd wait{wait_fd(pair.b.cq), POLLIN, 0};
    for (std::uint64_t round = 1; round <= 200; ++round) {
        fi_cq_data_entry entry{};
        arm(pair.b.cq);
        for (std::uint64_t i = round % 3; i != 0; --i) {
            assert_int_equal(fi_inject_write(pair.a.ep, nullptr, 0, 0, 0, FI_VMA_REGION_KEY),
                             0); // rings, and is no completion
            assert_int_equal(fi_cq_read(pair.b.cq, &entry, 1), -FI_EAGAIN);
        }
        assert_int_equal(fi_cq_read(pair.b.cq, &entry, 1), -FI_EAGAIN);
        assert_int_equal(poll(&wait, 1, 0), 0);
        assert_int_equal(fi_inject_writedata(pair.a.ep, nullptr, 0, round, 0, 0, FI_VMA_REGION_KEY), 0);
        assert_int_equal(poll(&wait, 1, kTooLong), 1);
        assert_int_equal(fi_cq_read(pair.b.cq, &entry, 1), 1);
        assert_int_equal(entry.data, round);
    }
}

// Nor does what was read then keep a sleeper from the next: it was not what he waits for, a part of a message say.
void a_sleeper_hears_of_what_comes_after_a_read(void **)
{
    Setup setup;
    setup.region = 4096;
    Pair pair(setup);
    pollfd wait{wait_fd(pair.b.cq), POLLIN, 0};
    for (std::uint64_t round = 1; round <= 200; ++round) {
        fi_cq_data_entry entry{};
        arm(pair.b.cq);
        assert_int_equal(fi_inject_writedata(pair.a.ep, nullptr, 0, 2 * round, 0, 0, FI_VMA_REGION_KEY), 0);
        assert_int_equal(next_entry(pair.b.cq).data, 2 * round);
        if (round % 2 != 0)
            assert_int_equal(fi_cq_read(pair.b.cq, &entry, 1), -FI_EAGAIN);
        assert_int_equal(fi_inject_writedata(pair.a.ep, nullptr, 0, 2 * round + 1, 0, 0, FI_VMA_REGION_KEY), 0);
        assert_int_equal(poll(&wait, 1, kTooLong), 1);
        assert_int_equal(next_entry(pair.b.cq).data, 2 * round + 1);
    }
}

// Both ends read, or sleep on, nothing but the queues that they send by; what they receive makes progress all the same.
void who_waits_for_his_sends_receives(void **)
{
    constexpr int kCount = 300;
    for (const bool sleeps : {false, true}) {
        Setup setup;
        setup.two_queues = true;
        setup.cq_size = setup.rx_size = kCount;
        Pair pair(setup);
        const auto send_all = [sleeps](Side &side) {
            std::vector<char> out(20'000), in(20'000);
            for (int i = 0; i < kCount; ++i)
                REQUIRE(fi_recv(side.ep, in.data(), in.size(), nullptr, 0, nullptr) == 0);
            for (int sent = 0, done = 0; done < kCount;) {
                fi_cq_data_entry entry{};
                if (sent < kCount && fi_send(side.ep, out.data(), out.size(), nullptr, 0, nullptr) == 0) {
                    ++sent;
                    continue;
                }
                const ssize_t got =
                    sleeps ? fi_cq_sread(side.tx_cq, &entry, 1, nullptr, kTooLong) : fi_cq_read(side.tx_cq, &entry, 1);
                REQUIRE(got == 1 || (got == -FI_EAGAIN && !sleeps));
                done += got == 1 ? 1 : 0;
            }
            for (int i = 0; i < kCount; ++i)
                (void)next_entry(side.cq);
        };
        std::thread other([&] { send_all(pair.b); });
        send_all(pair.a);
        other.join();
    }
}

} // namespace

int main()
{
    const OwnDirectory directory;
    const CMUnitTest tests[] = {
        cmocka_unit_test(two_processes_sleep),
        cmocka_unit_test(many_threads_sleep_on_one_queue),
        cmocka_unit_test(who_counts_sleepers_is_not_woken_for_nothing),
        cmocka_unit_test(threads_sleep_at_places),
        cmocka_unit_test(a_spinning_and_a_sleeping_thread),
        cmocka_unit_test(posting_a_receive_wakes_a_sleeper),
        cmocka_unit_test(a_starved_sender_sleeps),
        cmocka_unit_test(an_empty_read_leaves_the_queue_armed),
        cmocka_unit_test(a_sleeper_hears_of_what_comes_after_a_read),
        cmocka_unit_test(who_waits_for_his_sends_receives),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
