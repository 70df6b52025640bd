// SPDX-License-Identifier: BSD-2-Clause
// The order of a queue: what one sender published before something else comes first, whichever endpoints they came by
// and however the queue found them, by looking, by its doorbell, or after a sleep.
#include "fabtests/unit.hpp"

#include <atomic>
#include <poll.h>
#include <thread>

#include "fabtests/patience.hpp"
#include "prov/vma/test/local/pair.hpp"

namespace {

using namespace vma::test;

// Connections from one domain to another; all are read by one queue.
struct Star {
    Setup setup;
    Side a;
    Side b;
    std::vector<fid_ep *> from;
    std::vector<fid_ep *> to;

    explicit Star(std::size_t count) : setup(with_region()), a(setup), b(setup)
    {
        for (std::size_t i = 0; i < count; ++i)
            add();
    }
    ~Star()
    {
        while (!from.empty())
            remove();
    }
    Star(const Star &) = delete;
    Star &operator=(const Star &) = delete;

    static Setup with_region()
    {
        Setup setup;
        setup.region = 4096;
        setup.bind_flags = FI_SELECTIVE_COMPLETION;
        return setup;
    }
    void add()
    {
        from.push_back(a.open_endpoint(nullptr));
        to.push_back(b.open_endpoint(nullptr));
        REQUIRE(fi_enable(from.back()) == 0);
        REQUIRE(fi_enable(to.back()) == 0);
        join(vma::local::Endpoint::from(from.back()), vma::local::Endpoint::from(to.back()), true);
    }
    void remove()
    {
        REQUIRE(fi_close(&to.back()->fid) == 0);
        REQUIRE(fi_close(&from.back()->fid) == 0);
        to.pop_back();
        from.pop_back();
    }
    bool put(std::size_t which, std::uint64_t data) const
    {
        const ssize_t result = fi_inject_writedata(from[which], &data, sizeof data, data, 0, 0, FI_VMA_REGION_KEY);
        REQUIRE(result == 0 || result == -FI_EAGAIN);
        return result == 0;
    }
    std::size_t read(fi_cq_data_entry *entries, std::size_t most) const
    {
        const ssize_t got = fi_cq_read(b.cq, entries, most);
        REQUIRE(got > 0 || got == -FI_EAGAIN);
        return got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    bool arm() const { return vma::ofi::cq_of(b.cq).trywait(vma::ofi::cq_of(b.cq)) == 0; }
};

constexpr std::size_t kCounts[] = {2, 3, 5, 16, 64};

// One thread does all, so the order is known: the numbers come as they went. Some connections are busier than others,
// and change.
void one_after_the_other(void **)
{
    Random random;
    for (const std::size_t count : kCounts) {
        Star star(count);
        std::uint64_t sent = 0;
        std::uint64_t received = 0;
        std::size_t busy = 0;
        const auto read_some = [&](std::size_t most) {
            fi_cq_data_entry entries[64];
            const std::size_t got = star.read(entries, most);
            for (std::size_t i = 0; i < got; ++i)
                assert_int_equal(entries[i].data, received++);
            return got;
        };
        for (int round = 0; round < 20'000; ++round) {
            if (random.below(100) == 0)
                busy = random.below(count);
            const std::size_t which = random.below(2) ? random.below(count) : (busy + random.below(2)) % count;
            sent += star.put(which, sent) ? 1 : 0;
            if (random.below(8) == 0)
                (void)read_some(1 + random.below(random.below(4) ? 64 : 3));
            if (random.below(100) == 0)
                (void)star.arm();
        }
        while (received < sent)
            assert_true(read_some(16) != 0);
        assert_true(no_entry(star.b.cq));
    }
}

// The reader goes round while others write: a look at A, then a write to A and one to B, then a look at B. `sleeps`: it
// sleeps when there is nothing.
void with_writers(std::size_t count, std::size_t writers, bool sleeps)
{
    constexpr std::uint64_t kEach = 100'000;
    Star star(count * writers);
    std::vector<std::thread> threads;
    for (std::size_t w = 0; w < writers; ++w) {
        threads.emplace_back([&, w] {
            Random random(w);
            for (std::uint64_t number = 0; number < kEach;) {
                if (star.put(w * count + random.below(count), w << 32 | number))
                    ++number;
                else
                    sched_yield();
                if (sleeps && random.below(200) == 0)
                    std::this_thread::sleep_for(std::chrono::microseconds(1));
            }
        });
    }
    std::vector<std::uint64_t> next(writers);
    std::uint64_t left = kEach * writers;
    int fd = -1;
    assert_int_equal(fi_control(&star.b.cq->fid, FI_GETWAIT, &fd), 0);
    while (left != 0) {
        fi_cq_data_entry entries[16];
        const std::size_t got = star.read(entries, std::size(entries));
        for (std::size_t i = 0; i < got; ++i) {
            const std::size_t w = entries[i].data >> 32;
            assert_int_equal(entries[i].data & UINT32_MAX, next[w]++);
        }
        left -= got;
        if (got == 0 && left != 0 && sleeps && star.arm()) {
            pollfd wait{fd, POLLIN, 0};
            assert_int_equal(poll(&wait, 1, patience::milliseconds()), 1);
        } else if (got == 0) {
            sched_yield();
        }
    }
    for (std::thread &thread : threads)
        thread.join();
}

void writes_that_cross_a_look(void **)
{
    for (const std::size_t count : kCounts)
        with_writers(count, 1, false);
    with_writers(2, 3, false);
    with_writers(6, 3, false);
}

void writes_that_cross_a_sleep(void **)
{
    for (const std::size_t count : {std::size_t{2}, std::size_t{6}, std::size_t{64}})
        with_writers(count, 1, true);
    with_writers(3, 2, true);
}

// A connection that was the only one has not been asked for stamps: what it published then is earlier than all of the
// next one's.
void the_second_connection(void **)
{
    Star star(1);
    for (std::uint64_t round = 0; round < 200; ++round) {
        fi_cq_data_entry entries[8];
        assert_true(star.put(0, 0));
        star.add();
        assert_true(star.put(0, 1) && star.put(1, 2) && star.put(0, 3) && star.put(1, 4));
        if (round % 3 == 0)
            (void)star.arm();
        std::size_t got = 0;
        while (got < 5)
            got += star.read(entries + got, 5 - got);
        for (std::uint64_t i = 0; i < 5; ++i)
            assert_int_equal(entries[i].data, i);
        assert_true(star.put(1, 5) && star.put(0, 6));
        fi_cq_data_entry first{};
        assert_int_equal(star.read(&first, 1), 1);
        assert_int_equal(first.data, 5);
        star.remove();
        assert_int_equal(star.read(&first, 1), 1);
        assert_int_equal(first.data, 6);
    }
}

// An end delivers what its peer has published, and before that what it has published elsewhere.
void the_end_of_one(void **)
{
    Star star(6);
    for (std::uint64_t round = 0; round < 50; ++round) {
        const std::size_t ending = star.to.size() - 1;
        for (std::uint64_t i = 0; i < 20; ++i)
            assert_true(star.put(i % 2 ? ending : i % ending, i));
        vma::local::Endpoint::from(star.to[ending]).on_peer_shutdown();
        std::uint64_t next = 0;
        fi_cq_data_entry entry{};
        while (next < 20) {
            assert_int_equal(star.read(&entry, 1), 1);
            assert_int_equal(entry.data, next++);
        }
        star.remove();
        star.add();
    }
}

// A peer whose slots claim to be the earliest of all doesn't shut out the others.
void stamps_that_lie(void **)
{
    for (const std::size_t liars : {std::size_t{1}, std::size_t{5}}) {
        Star star(liars + 1);
        for (std::size_t i = 0; i < liars; ++i)
            vma::local::Endpoint::from(star.from[i]).sender.control().stamps.store(0);
        const auto flood = [&] {
            for (std::size_t i = 0; i < liars; ++i) {
                while (star.put(i, i)) {
                }
            }
        };
        for (int round = 0; round < 20; ++round) {
            flood();
            assert_true(star.put(liars, liars));
            bool seen = false;
            for (unsigned reads = 0; !seen; ++reads) {
                assert_true(reads < 100);
                fi_cq_data_entry entries[16];
                const std::size_t got = star.read(entries, 16);
                for (std::size_t i = 0; i < got; ++i)
                    seen |= entries[i].data == liars;
                flood();
            }
        }
    }
}

// By another clock than the queue's a slot may be from long ago or from far ahead: it comes all the same, and the
// others with it.
void stamps_of_another_clock(void **)
{
    using vma::local::StampClock;
    const StampClock other =
        vma::local::stamp_clock() == StampClock::cycles ? StampClock::nanoseconds : StampClock::cycles;
    for (const bool queue : {false, true}) {
        Star star(6);
        if (queue)
            vma::local::queue_of(star.b.cq).clock = other;
        else
            vma::local::Endpoint::from(star.from[0]).sender.control().stamps.store(static_cast<std::uint32_t>(other));
        for (int round = 0; round < 2000; ++round) {
            for (std::size_t i = 0; i < star.from.size(); ++i)
                assert_true(star.put(i, i) && star.put(i, i));
            std::size_t got[6] = {};
            for (std::size_t all = 0, reads = 0; all < 12; ++reads) {
                assert_true(reads < 100);
                fi_cq_data_entry entries[5];
                const std::size_t count = star.read(entries, 5);
                for (std::size_t i = 0; i < count; ++i)
                    ++got[entries[i].data];
                all += count;
            }
            for (const std::size_t count : got)
                assert_int_equal(count, 2);
        }
    }
}

} // namespace

int main()
{
    const OwnDirectory directory;
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(writes_that_cross_a_look),
        cmocka_unit_test(writes_that_cross_a_sleep),
        cmocka_unit_test(the_second_connection),
        cmocka_unit_test(the_end_of_one),
        cmocka_unit_test(stamps_that_lie),
        cmocka_unit_test(stamps_of_another_clock),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
