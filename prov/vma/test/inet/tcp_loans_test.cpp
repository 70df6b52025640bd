// SPDX-License-Identifier: BSD-2-Clause
// Received bytes that are lent out of the stack's memory: given back in any order, by any thread, late or never.
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "fabtests/seed.hpp"
#include "prov/vma/test/inet/world.hpp"

namespace {

using namespace vma::inet;
using namespace vma::inet::sim;

constexpr std::uint16_t kClient = 1000;

struct Loan {
    std::uint64_t position;
    std::span<const std::uint8_t> piece;
};

// Reads by loans, keeps up to `most` of them, and sees that they stay as they were.
class Borrower
{
public:
    Borrower(unsigned seed, std::size_t most) : random_(seed), most_(most) {}

    std::int64_t read(Tcp &tcp, const Program &program, Nanos now, std::span<std::uint8_t> out)
    {
        seed_ = program.in_seed;
        if (!arena_)
            arena_ = tcp.arena().share();
        std::span<const std::uint8_t> piece;
        const std::size_t most = random_.below(4) == 0 ? 1 + random_.below(100) : out.size();
        const std::int64_t n = tcp.lend(now, program.id, most, piece);
        if (n == -ENOBUFS) {
            ++refused;
            return tcp.receive(now, program.id, out);
        }
        if (n <= 0)
            return n;
        assert_int_equal(n, piece.size());
        std::memcpy(out.data(), piece.data(), piece.size());
        held.push_back({program.received, piece});
        ++lent;
        while (held.size() > most_)
            give_back(random_.below(held.size()));
        return n;
    }
    void give_back(std::size_t place)
    {
        const Loan loan = held[place];
        held[place] = held.back();
        held.pop_back();
        assert_true(check(seed_, loan.position, loan.piece));
        arena_->give_back(loan.piece.data());
    }
    void give_all_back()
    {
        while (!held.empty())
            give_back(random_.below(held.size()));
    }

    std::vector<Loan> held;
    unsigned lent = 0;
    unsigned refused = 0;

private:
    Random random_;
    std::size_t most_;
    std::uint64_t seed_ = 0;
    BlockArena::Owned arena_; // it goes before what it lends
};

void borrow_by(World &world, std::uint16_t port, Borrower &borrower)
{
    world.programs[1][port].read = [&borrower](Tcp &tcp, const Program &program, Nanos now,
                                               std::span<std::uint8_t> out) {
        return borrower.read(tcp, program, now, out);
    };
}

bool run(World &world, const std::function<bool()> &done)
{
    return world.net.run(world.net.now() + kLong, done, [&world] { world.act(); });
}

bool run(World &world)
{
    return run(world, [&world] { return world.all_closed(); });
}

void lent_bytes_stay_over_a_bad_link(void **)
{
    constexpr std::uint64_t kBytes = 2000000;
    for (const std::size_t most : {0UL, 1UL, 40UL, 100000UL}) {
        Borrower borrower(vma::test::seed(), most);
        {
            World world(vma::test::seed(), bad_link());
            world.start(kClient, kBytes, 1000);
            borrow_by(world, kClient, borrower);
            assert_true(run(world));
            assert_int_equal(world.programs[1][kClient].received, kBytes);
            assert_true(borrower.lent > kBytes / 4096 && borrower.refused == 0);
            assert_true(borrower.held.size() == std::min<std::size_t>(most, borrower.lent));
        } // the stack goes, and what is held does not
        borrower.give_all_back();
    }
}

void nothing_is_left_out(void **)
{
    Borrower borrower(vma::test::seed(), 30);
    World world(vma::test::seed(), bad_link());
    world.start(kClient, 500000, 500000);
    borrow_by(world, kClient, borrower);
    assert_true(run(world));
    borrower.give_all_back();
    world.net.tcp(1).collect();
    world.run_to_the_end();
}

// He has a quarter of the memory, and no more; he goes on by copies, and so does another. The other begins when the
// quarter is taken: on a bad link he could be through before.
void who_never_gives_back_harms_nobody(void **)
{
    TcpLimits limits;
    limits.blocks = 256;
    Borrower borrower(vma::test::seed(), SIZE_MAX);
    Borrower other(vma::test::seed() + 1, 4);
    World world(vma::test::seed(), bad_link(), limits);
    world.start(kClient, 3000000, 0);
    borrow_by(world, kClient, borrower);
    assert_true(run(world, [&borrower] { return borrower.refused > 0; }));
    world.start(kClient + 1, 3000000, 0);
    borrow_by(world, kClient + 1, other);
    assert_true(run(world));
    for (const std::uint16_t port : {kClient, static_cast<std::uint16_t>(kClient + 1)}) {
        assert_false(world.programs[1][port].failed);
        assert_int_equal(world.programs[1][port].received, 3000000);
    }
    assert_true(borrower.refused > 0 && other.refused > 0);
    const BlockPool &blocks = world.net.tcp(1).blocks();
    other.give_all_back();
    world.net.tcp(1).collect();
    assert_true(blocks.available() >= blocks.total() - blocks.total() / 4);
    borrower.give_all_back();
    world.net.tcp(1).collect();
    assert_int_equal(blocks.available(), blocks.total());
}

// A block is free with the last of what was lent of it, and of the queue.
void parts_of_a_block(void **)
{
    BlockPool pool(16, 6);
    ByteQueue queue;
    std::uint8_t bytes[200];
    fill(1, 0, bytes);
    assert_int_equal(queue.append(pool, bytes, 100), 100);
    std::span<const std::uint8_t> parts[3];
    for (const std::size_t i : {0UL, 1UL, 2UL}) {
        parts[i] = queue.front(pool, 30); // 30, 30, and the 4 that are left of the block
        pool.arena().lend(parts[i].data());
        queue.pop(pool, parts[i].size());
    }
    assert_int_equal(parts[2].size(), 4);
    assert_int_equal(queue.append(pool, bytes + 100, 100), 100); // behind what is lent
    assert_int_equal(pool.available(), 16 - 4);
    for (const std::size_t i : {1UL, 0UL, 2UL}) {
        assert_int_equal(pool.available(), 16 - 4);
        assert_true(check(1, i * 30, parts[i]));
        pool.arena().give_back(parts[i].data());
        pool.collect();
    }
    assert_int_equal(pool.available(), 16 - 3);
    parts[0] = queue.front(pool, 10);
    pool.arena().lend(parts[0].data());
    pool.arena().give_back(parts[0].data()); // before the queue is done with it
    pool.collect();
    assert_int_equal(pool.available(), 16 - 3);
    queue.clear(pool);
    assert_int_equal(pool.available(), 16);
}

// Two threads give back what one lends.
void threads_give_back(void **)
{
    constexpr unsigned kCount = 20000;
    BlockPool pool(64, 12);
    std::atomic<const std::uint8_t *> slots[8] = {};
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    for (unsigned which : {0U, 1U}) {
        threads.emplace_back([&, which] {
            while (!done.load()) {
                for (unsigned i = which; i < std::size(slots); i += 2) {
                    const std::uint8_t *const part = slots[i].exchange(nullptr);
                    if (part == nullptr)
                        continue;
                    if (part[0] != part[63])
                        UNIT_FAIL("a byte has changed");
                    pool.arena().give_back(part);
                }
                std::this_thread::yield();
            }
        });
    }
    ByteQueue queue;
    for (unsigned number = 0, lent = 0; lent < kCount; ++number) {
        std::uint8_t bytes[64];
        std::memset(bytes, static_cast<int>(number & 0xff), sizeof bytes);
        pool.collect();
        if (queue.append(pool, bytes, sizeof bytes) != sizeof bytes)
            UNIT_FAIL("no memory, and a quarter is lent at most");
        std::atomic<const std::uint8_t *> &slot = slots[number % std::size(slots)];
        const std::span<const std::uint8_t> part = queue.front(pool, sizeof bytes);
        if (slot.load() == nullptr && pool.arena().may_lend()) {
            pool.arena().lend(part.data());
            slot.store(part.data());
            ++lent;
        }
        queue.pop(pool, sizeof bytes);
    }
    done.store(true);
    for (std::thread &thread : threads)
        thread.join();
    for (std::atomic<const std::uint8_t *> &slot : slots)
        if (const std::uint8_t *const part = slot.exchange(nullptr))
            pool.arena().give_back(part);
    queue.clear(pool);
    pool.collect();
    assert_int_equal(pool.available(), pool.total());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(lent_bytes_stay_over_a_bad_link),
        cmocka_unit_test(nothing_is_left_out),
        cmocka_unit_test(who_never_gives_back_harms_nobody),
        cmocka_unit_test(parts_of_a_block),
        cmocka_unit_test(threads_give_back),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
