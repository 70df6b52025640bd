// SPDX-License-Identifier: BSD-2-Clause
// Frames that processes share, with this test in the kernel's place: none is ever in two hands, and none is lost,
// wherever a process is killed.
#include "fabtests/unit.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <set>
#include <vector>

#include "ether/xdp/frame_pool.hpp"

using namespace vma::ether;

namespace {

constexpr std::uint32_t kRing = 64;
constexpr unsigned kPlaces = 3; // the first is this process's
constexpr std::uint32_t kKept = 6;
constexpr std::uint32_t kBytes = 2048; // of a buffer

// A sanitizer's instructions are many more, and its fork() takes long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSteps = 2;
constexpr int kRounds = 20;
#else
constexpr std::uint64_t kSteps = 40;
constexpr int kRounds = 300;
#endif

template <typename Entry, std::uint32_t Size> struct Ring {
    std::uint32_t producer = 0;
    std::uint32_t consumer = 0;
    std::uint32_t flags = 0;
    Entry entries[Size] = {};

    XdpRing<Entry> ours() { return {&producer, &consumer, &flags, entries, Size}; }
    // As the kernel.
    std::uint32_t load(std::uint32_t &index) const { return std::atomic_ref(index).load(std::memory_order_acquire); }
    std::uint32_t level() { return load(producer) - load(consumer); }
    void add(const Entry &entry)
    {
        entries[producer % Size] = entry;
        std::atomic_ref(producer).store(producer + 1, std::memory_order_release);
    }
    Entry remove()
    {
        const Entry entry = entries[consumer % Size];
        std::atomic_ref(consumer).store(consumer + 1, std::memory_order_release);
        return entry;
    }
};

// What all processes have.
struct World {
    Ring<std::uint64_t, kRing> fill;
    Ring<std::uint64_t, 256> completed;
    Ring<xdp_desc, kRing> received[kPlaces];
    Ring<xdp_desc, kRing> queued[kPlaces];
    std::atomic<std::uint64_t> steps[kPlaces];
    alignas(64) std::byte pool[1 << 16];
};

class Queue
{
public:
    explicit Queue(std::uint32_t send_buffers)
        : size_{kRing + kPlaces * (kRing + kKept), 48, send_buffers, kBytes},
          memory_(::mmap(nullptr, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
    {
        assert_true(memory_ != MAP_FAILED && FramePool::bytes(size_) <= sizeof world_->pool);
        world_ = new (memory_) World;
        pool_ = pool_of(0);
        pool_.begin();
    }
    ~Queue() { ::munmap(memory_, sizeof(World)); }
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;

    const FramePoolSize &size() const { return size_; }
    World &world() { return *world_; }
    FramePool &pool() { return pool_; }
    FramePool pool_of(unsigned place)
    {
        FramePool pool(world_->pool, size_, place);
        pool.use(world_->fill.ours(), world_->completed.ours());
        return pool;
    }

    void become(Queue &other) { std::memcpy(memory_, other.memory_, sizeof(World)); }

    // Frames come for these places, and what was sent is told of.
    void turn(std::initializer_list<unsigned> places, std::minstd_rand &random)
    {
        for (const unsigned place : places) {
            if (world_->fill.level() != 0 && world_->received[place].level() < kRing && random() % 4 != 0)
                world_->received[place].add({world_->fill.remove() + 256, 64, 0});
            if (world_->queued[place].level() != 0 && random() % 2 != 0)
                world_->completed.add(world_->queued[place].remove().addr);
        }
    }
    void send_all(unsigned place)
    {
        while (world_->queued[place].level() != 0)
            world_->completed.add(world_->queued[place].remove().addr);
    }

    bool bury(unsigned place, std::uint32_t dead)
    {
        XdpRing<xdp_desc> received = world_->received[place].ours();
        XdpRing<xdp_desc> queued = world_->queued[place].ours();
        const bool done = pool_.recover({place, &received, &queued}, dead);
        send_all(place);
        return done;
    }

    // Nobody holds any: each is free, and once.
    void all_are_free()
    {
        std::vector<FrameIndex> to_send;
        FrameIndex some[2];
        while (const std::size_t count = pool_.take(some, 0)) {
            to_send.insert(to_send.end(), some, some + count);
            assert_true(to_send.size() <= 2 * std::size_t{size_.send});
        }
        std::set<FrameIndex> once(to_send.begin(), to_send.end());
        assert_int_equal(once.size(), to_send.size());
        assert_int_equal(once.size(), size_.send);
        for (const FrameIndex frame : once)
            assert_true(frame >= size_.receive && (frame - size_.receive) % size_.send_buffers == 0);

        std::set<std::uint64_t> to_receive;
        for (bool any = true; any;) {
            any = false;
            while (world_->fill.level() != 0) {
                const std::uint64_t address = world_->fill.remove();
                assert_int_equal(address % kBytes, 0);
                assert_true(address / kBytes < size_.receive);
                assert_true(to_receive.insert(address).second);
                any = true;
            }
            pool_.top_up();
        }
        assert_int_equal(to_receive.size(), size_.receive);
    }

private:
    const FramePoolSize size_;
    void *const memory_;
    World *world_ = nullptr;
    FramePool pool_;
};

// What a process does with its frames, for ever: receives, answers with frames of its own or in place, gives back.
class Worker
{
public:
    Worker(Queue &queue, unsigned place, unsigned seed)
        : world_(queue.world()), size_(queue.size()), place_(place), pool_(queue.pool_of(place)),
          received_(world_.received[place].ours()), queued_(world_.queued[place].ours()), random_(seed)
    {
        received_.resume_consuming();
        queued_.resume_producing();
    }

    void step()
    {
        for (std::uint32_t left = std::min(received_.ready(), 8U); left != 0; --left) {
            const auto frame = static_cast<FrameIndex>(received_.get().addr / kBytes);
            pool_.hold(frame);
            if (random_() % 8 != 0 || !send(frame, 1))
                released_.push_back(frame);
        }
        received_.give_back();
        if (pool_.put_back(released_))
            released_.clear();
        if (pool_.is_short())
            pool_.top_up();
        if (kept_ == 0)
            kept_ = pool_.take(free_, 0);
        if (kept_ != 0 && send(free_[kept_ - 1], static_cast<std::uint32_t>(1 + random_() % size_.send_buffers)))
            --kept_;
        queued_.publish();
        if (random_() % 8 == 0) {
            const std::size_t more = kept_ / 2;
            if (pool_.give_back(std::span(free_).subspan(kept_ - more, more)))
                kept_ -= more;
        }
        if (pool_.has_completed() && random_() % 4 == 0) // several at a time, more than are kept
            kept_ = pool_.reap(std::span(free_).first(std::min<std::size_t>(kept_ + 1, kKept)), kept_);
        world_.steps[place_].fetch_add(1, std::memory_order_relaxed);
    }

    void leave()
    {
        XdpRing<xdp_desc> received = world_.received[place_].ours();
        XdpRing<xdp_desc> queued = world_.queued[place_].ours();
        assert_true(pool_.recover({place_, &received, &queued}, 0));
    }

private:
    bool send(FrameIndex frame, std::uint32_t buffers)
    {
        if (!queued_.has_space(buffers))
            return false;
        for (std::uint32_t i = 0; i < buffers; ++i)
            queued_.put({std::uint64_t{frame + i} * kBytes, 64, 0});
        pool_.note_queued(frame, queued_.position(), buffers - 1);
        return true;
    }

    World &world_;
    const FramePoolSize size_;
    const unsigned place_;
    FramePool pool_;
    XdpRing<xdp_desc> received_;
    XdpRing<xdp_desc> queued_;
    std::minstd_rand random_;
    std::vector<FrameIndex> released_;
    FrameIndex free_[kKept] = {};
    std::size_t kept_ = 0;
};

void all_are_free_at_first(void **)
{
    Queue queue(1);
    assert_int_equal(queue.pool().free_to_receive(), queue.size().receive);
    assert_int_equal(queue.pool().free_to_send(), queue.size().send);
    queue.all_are_free();
}

void who_leaves_gives_all_back(void **)
{
    for (const std::uint32_t buffers : {1U, 3U}) {
        Queue queue(buffers);
        std::minstd_rand random(buffers);
        Worker one(queue, 1, 1);
        Worker two(queue, 2, 2);
        for (int i = 0; i < 5000; ++i) {
            queue.turn({1, 2}, random);
            one.step();
            two.step();
        }
        for (const unsigned place : {1U, 2U})
            queue.send_all(place);
        one.leave();
        two.leave();
        queue.all_are_free();
    }
}

void a_ring_that_nobody_empties_takes_no_more_than_it_holds(void **)
{
    Queue queue(1);
    std::minstd_rand random(1);
    for (int i = 0; i < 5000; ++i)
        queue.turn({2}, random);
    assert_int_equal(queue.world().received[2].level(), kRing);
    Worker goes_on(queue, 1, 1);
    for (int i = 0; i < 5000; ++i) {
        queue.turn({1, 2}, random);
        goes_on.step();
    }
    assert_true(queue.world().fill.level() > 0);
    assert_true(queue.world().received[1].consumer > 1000);
}

pid_t start(Queue &queue, unsigned place, unsigned seed)
{
    const pid_t child = ::fork();
    assert_true(child >= 0);
    if (child == 0) {
        Worker worker(queue, place, seed);
        while (true)
            worker.step();
    }
    return child;
}

void end(pid_t child)
{
    assert_int_equal(::kill(child, SIGKILL), 0);
    assert_int_equal(::waitpid(child, nullptr, 0), child);
}

// All bytes of what the processes share, holes too: what is written is what counts.
bool looks_as(const std::vector<std::byte> &seen, Queue &queue)
{
    const void *const world = &queue.world();
    return std::memcmp(seen.data(), world, sizeof(World)) == 0;
}

// As if it were killed after each single instruction of some steps: what it has written so far is cleared away in a
// copy, in which all frames must be free then, and once. With another process (this one is it) that gets what the
// kernel can be told of so far, and is killed too.
void kill_after_each_instruction(bool beside_another)
{
    for (const std::uint32_t buffers : {1U, 3U}) {
        Queue queue(buffers);
        std::minstd_rand random(buffers);
        const pid_t child = ::fork();
        assert_true(child >= 0);
        if (child == 0) {
            ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
            ::raise(SIGSTOP);
            Worker worker(queue, 1, buffers);
            while (true)
                worker.step();
        }
        int status = 0;
        assert_int_equal(::waitpid(child, &status, 0), child);
        Queue copy(buffers);
        Worker another(queue, 2, buffers);
        std::vector<std::byte> seen(sizeof(World));
        std::uint64_t checks = 0;
        for (std::uint64_t before = 0; before < kSteps;) {
            assert_int_equal(::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr), 0);
            assert_int_equal(::waitpid(child, &status, 0), child);
            assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
            const std::uint64_t now = queue.world().steps[1].load();
            for (; before != now; ++before) {
                for (int i = 0; i < 6; ++i)
                    queue.turn({1}, random);
            }
            if (looks_as(seen, queue))
                continue;
            for (int i = 0; beside_another && i < 100 && queue.world().fill.level() != 0; ++i)
                queue.turn({2}, random);
            for (int i = 0; beside_another && i < 10 && queue.world().received[2].level() != 0; ++i)
                another.step();
            std::memcpy(seen.data(), &queue.world(), sizeof(World));
            copy.become(queue);
            assert_true(copy.bury(1, 1U << 1));
            if (beside_another)
                assert_true(copy.bury(2, 1U << 2));
            copy.all_are_free();
            ++checks;
        }
        assert_true(checks >= kSteps);
        end(child);
    }
}

void killed_after_each_instruction(void **)
{
    kill_after_each_instruction(false);
}

void killed_after_each_instruction_beside_another(void **)
{
    kill_after_each_instruction(true);
}

// Likewise whoever clears away: another one does it again then, of the first that died and of that one.
void killed_after_each_instruction_of_clearing_away(void **)
{
    for (const std::uint32_t buffers : {1U, 3U}) {
        Queue queue(buffers);
        std::minstd_rand random(buffers);
        Worker one(queue, 1, buffers);
        for (int i = 0; i < 50; ++i) {
            queue.turn({1, 1, 1}, random);
            one.step();
        }
        while (queue.world().fill.level() != 0 && queue.world().received[1].level() < 8)
            queue.turn({1}, random);
        const pid_t child = ::fork();
        assert_true(child >= 0);
        if (child == 0) {
            ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
            XdpRing<xdp_desc> received = queue.world().received[1].ours();
            XdpRing<xdp_desc> queued = queue.world().queued[1].ours();
            FramePool pool = queue.pool_of(2);
            ::raise(SIGSTOP);
            ::_exit(pool.recover({1, &received, &queued}, 1U << 1) ? 0 : 1);
        }
        int status = 0;
        assert_int_equal(::waitpid(child, &status, 0), child);
        Queue copy(buffers);
        std::vector<std::byte> seen(sizeof(World));
        std::uint64_t checks = 0;
        while (true) {
            assert_int_equal(::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr), 0);
            assert_int_equal(::waitpid(child, &status, 0), child);
            if (WIFEXITED(status))
                break;
            if (looks_as(seen, queue))
                continue;
            std::memcpy(seen.data(), &queue.world(), sizeof(World));
            for (const unsigned first : {1U, 2U}) {
                copy.become(queue);
                assert_true(copy.bury(first, 1U << 1 | 1U << 2));
                assert_true(copy.bury(3 - first, 1U << 1 | 1U << 2));
                copy.all_are_free();
            }
            ++checks;
        }
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_true(checks > 8);
    }
}

// Two processes at work; one is killed at some instruction, cleared away while the other goes on, then that one too.
void killed_at_any_moment(void **)
{
    const char *const wanted = std::getenv("VMA_TEST_SEED");
    const unsigned seed = wanted != nullptr ? static_cast<unsigned>(std::atoi(wanted)) : std::random_device()();
    std::printf("# VMA_TEST_SEED=%u\n", seed);
    std::minstd_rand random(seed);
    for (int round = 0; round < kRounds; ++round) {
        const std::uint32_t buffers = round % 2 == 0 ? 1 : 3;
        Queue queue(buffers);
        const pid_t children[] = {start(queue, 1, static_cast<unsigned>(random())),
                                  start(queue, 2, static_cast<unsigned>(random()))};
        const auto work = [&](unsigned place, std::initializer_list<unsigned> places) {
            const std::uint64_t enough = queue.world().steps[place].load() + random() % 2000 + 1;
            while (queue.world().steps[place].load() < enough)
                queue.turn(places, random);
        };
        work(1, {1, 2});
        end(children[0]);
        assert_true(queue.bury(1, 1U << 1));
        work(2, {2});
        end(children[1]);
        queue.send_all(2);
        assert_true(queue.bury(2, 1U << 2));
        queue.all_are_free();
    }
}

// What a process that died with the lock was doing is ended by whoever clears it away, and not before it is dead.
void a_lock_of_the_dead_is_taken_over(void **)
{
    Queue queue(1);
    const pid_t child = ::fork();
    assert_true(child >= 0);
    if (child == 0) {
        auto &lock = *reinterpret_cast<std::atomic<std::uint32_t> *>(queue.world().pool);
        lock.store(2); // place 1's
        ::_exit(0);
    }
    assert_int_equal(::waitpid(child, nullptr, 0), child);
    FrameIndex frames[4];
    assert_int_equal(queue.pool().take(frames, 0), 0);
    assert_false(queue.bury(1, 0)); // nobody says that it is dead
    assert_true(queue.bury(1, 1U << 1));
    queue.all_are_free();
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(all_are_free_at_first),
        cmocka_unit_test(who_leaves_gives_all_back),
        cmocka_unit_test(a_ring_that_nobody_empties_takes_no_more_than_it_holds),
        cmocka_unit_test(killed_after_each_instruction),
        cmocka_unit_test(killed_after_each_instruction_beside_another),
        cmocka_unit_test(killed_after_each_instruction_of_clearing_away),
        cmocka_unit_test(killed_at_any_moment),
        cmocka_unit_test(a_lock_of_the_dead_is_taken_over),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
