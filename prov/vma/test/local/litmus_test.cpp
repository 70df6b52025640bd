// SPDX-License-Identifier: BSD-2-Clause
// Pairs of a store and a load that cross in two threads (doc/memory-order.md): of what both do at the same moment, one
// at least has to see the other's. Each round is one crossing. A processor that keeps its stores back, as all do,
// shows what lacks a fence after some thousand; one that is ordered less strictly shows more.
#include "fabtests/unit.hpp"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "core/barrier.hpp"
#include "core/fd.hpp"
#include "core/spinlock.hpp"
#include "local/doorbell.hpp"
#include "local/msg/slots.hpp"
#include "local/ring/reader.hpp"
#include "local/ring/writer.hpp"
#include "prov/vma/test/local/pair.hpp"

namespace {

using namespace vma::local;
namespace core = vma::core;

constexpr unsigned kRounds = 20000;
constexpr unsigned kRoundsWithBarriers = 1000; // which interrupt all processors

// Two threads come by in each round.
class Meeting
{
public:
    void wait()
    {
        const unsigned until = (came_.fetch_add(1) / 2 + 1) * 2;
        for (unsigned turn = 1; came_.load() < until; ++turn) {
            core::cpu_relax();
            if (turn % 200 == 0) // with one processor the other one needs it
                sched_yield();
        }
    }

private:
    std::atomic<unsigned> came_{0};
};

// In each round prepare(), in the second thread, so that what it wrote is not near the first; then first() beside
// second(), then judge(), which says whether it went well. Fewer rounds where the two seldom have a processor each.
template <typename Prepare, typename First, typename Second, typename Judge>
void cross(unsigned rounds, Prepare prepare, First first, Second second, Judge judge)
{
    constexpr std::chrono::seconds kEnough(1);
    const auto end_of_time = std::chrono::steady_clock::now() + kEnough;
    Meeting ready;
    Meeting begin;
    Meeting end;
    std::atomic<bool> more{true};
    std::thread other([&] {
        for (ready.wait(); more.load(); ready.wait()) {
            prepare();
            begin.wait();
            second();
            end.wait();
        }
    });
    unsigned failures = 0;
    for (unsigned i = 0; i < rounds && std::chrono::steady_clock::now() < end_of_time; ++i) {
        ready.wait();
        begin.wait();
        first();
        end.wait();
        failures += !judge();
    }
    more.store(false);
    ready.wait();
    other.join();
    assert_int_equal(failures, 0);
}

struct Bells {
    Doorbell bell;
    std::shared_ptr<PeerDoorbell> peer;
    std::uint32_t bit = 0;

    Bells()
    {
        REQUIRE(bell.open() == 0);
        bit = static_cast<std::uint32_t>(bell.allocate_bit());
        REQUIRE(open_peer_doorbell({getpid(), 0}, core::duplicate_fd(bell.memory_fd()),
                                   core::duplicate_fd(bell.wake_fd()), peer) == 0);
    }
    // The bits are near the thread that looks at them.
    void look() const
    {
        const auto *const words = reinterpret_cast<const std::atomic<std::uint64_t> *>(bell.places() + kPlaces);
        static_cast<void>(words[0].load(std::memory_order_acquire));
        static_cast<void>(bell.rung());
    }
    void clear()
    {
        bell.collect([](std::uint32_t) {});
        REQUIRE(!bell.rung());
    }
};

// The bit is set already: either it is taken after the word was written, or it is set once more. `ring` stores to the
// word and rings.
template <typename Ring> void a_bit_that_is_set_already(Bells &bells, Ring ring)
{
    std::atomic<int> word{0};
    int seen = 0;
    cross(
        kRounds,
        [&] {
            bells.clear();
            word.store(0);
            bells.bell.ring_self(bells.bit);
        },
        [&] { ring(word); },
        [&] { bells.bell.collect([&](std::uint32_t) { seen = word.load(std::memory_order_relaxed); }); },
        [&] { return seen == 1 || bells.bell.rung(); });
}

void who_rings_for_himself(void **)
{
    Bells bells;
    a_bit_that_is_set_already(bells, [&](std::atomic<int> &word) {
        bells.look();
        word.store(1, std::memory_order_relaxed);
        bells.bell.ring_self(bells.bit);
    });
}

void who_rings_for_a_peer(void **)
{
    Bells bells;
    a_bit_that_is_set_already(bells, [&](std::atomic<int> &word) {
        word.store(1, std::memory_order_relaxed);
        core::full_fence();
        bells.peer->ring(bells.bit);
    });
}

void who_goes_to_sleep_by_the_bell(void **)
{
    Bells bells;
    bool rung = false;
    cross(
        kRounds, [&] { bells.clear(); }, [&] { bells.peer->ring(bells.bit); },
        [&] {
            bells.bell.arm();
            rung = bells.bell.rung();
        },
        [&] {
            const bool good = rung || bells.bell.readable();
            bells.bell.disarm();
            bells.bell.drain();
            return good;
        });
}

void who_goes_to_sleep_at_a_place(void **)
{
    Bells bells;
    Place &place = bells.bell.places()[bells.bit % kPlaces];
    constexpr std::uint64_t kOneSleep = (std::uint64_t{1} << 32) + 1;
    std::uint32_t turn = 0;
    bool rung = false;
    cross(
        kRounds, [&] { bells.clear(); }, [&] { bells.peer->ring(bells.bit); },
        [&] {
            turn = place.turn.load();
            place.asleep.fetch_add(kOneSleep, std::memory_order_seq_cst);
            core::fence_after_exchange();
            rung = bells.bell.rung();
        },
        [&] {
            place.asleep.fetch_sub(1);
            return rung || place.turn.load() != turn;
        });
}

// Either the writer sees that it shall ring, or the reader sees the slot.
void who_looks_at_slots_no_longer(void **)
{
    struct Slots {
        alignas(128) Control control{};
        Slot slots[kSlotCount]{};
    };
    const auto memory = std::make_unique<Slots>();
    SlotWriter writer;
    SlotReader reader;
    writer.attach(&memory->control, memory->slots);
    reader.attach(&memory->control, memory->slots);
    bool watching = false;
    bool ready = false;
    cross(
        kRounds, [&] { reader.watch(); },
        [&] {
            writer.publish(SlotOp::send_inline, 0, 0, 0, 0);
            watching = writer.reader_state() == RxState::watching;
        },
        [&] {
            reader.ask_for_ring();
            ready = reader.ready();
        },
        [&] {
            reader.consume();
            reader.publish();
            writer.free_until(reader.next());
            return !watching || ready;
        });
}

// The fences of a ring's two ends; or the reader alone, for both.
struct RingPair {
    SharedMemory memory;
    RingWriter writer;
    RingReader reader;

    explicit RingPair(bool reader_fences)
    {
        REQUIRE(create_shared("litmus", sizeof(RingMemory), memory) == 0);
        auto *const ring = reinterpret_cast<RingMemory *>(memory.mapping.data());
        writer.attach(ring);
        reader.attach(ring);
        if (reader_fences) {
            writer.leave_fences_to_reader();
            reader.fence_for_writer();
        }
    }
    void write()
    {
        REQUIRE(writer.claim(0) != nullptr);
        writer.publish(0, false, 0);
    }
    void read()
    {
        Arrived arrived{};
        REQUIRE(reader.peek(arrived) == RingReader::Peek::datagram);
        reader.consume(arrived);
        reader.publish();
    }
};

void look_at_a_ring_no_longer(bool reader_fences, unsigned rounds)
{
    RingPair pair(reader_fences);
    bool watching = false;
    bool ready = false;
    cross(
        rounds, [&] { pair.reader.set_state(RingState::watching); },
        [&] {
            pair.write();
            watching = pair.writer.state() == RingState::watching;
        },
        [&] {
            REQUIRE(pair.reader.set_state(RingState::ring));
            ready = pair.reader.ready();
        },
        [&] {
            pair.read();
            return !watching || ready;
        });
}

void who_looks_at_a_ring_no_longer(void **)
{
    look_at_a_ring_no_longer(false, kRounds);
}

void who_fences_for_both(void **)
{
    if (!core::join_barriers() || !core::barrier_everywhere())
        UNIT_SKIP("no membarrier(2) for all processes here");
    look_at_a_ring_no_longer(true, kRoundsWithBarriers);
}

// A writer that leaves its fences to the reader rings for a record while the bit of the one before is being taken.
void who_rings_without_a_fence_of_the_ring(void **)
{
    Bells bells;
    RingPair pair(true);
    bool taken = false;
    bool ready = false;
    cross(
        kRounds,
        [&] {
            bells.clear();
            bells.bell.ring_self(bells.bit);
        },
        [&] {
            bells.look();
            pair.write();
            (void)pair.writer.state();
            pair.writer.fence_before_bell();
            bells.peer->ring(bells.bit);
        },
        [&] {
            taken = false;
            bells.bell.collect([&](std::uint32_t) {
                taken = true;
                ready = pair.reader.ready();
            });
        },
        [&] {
            pair.read();
            return !taken || ready || bells.bell.rung();
        });
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_rings_for_himself),         cmocka_unit_test(who_rings_for_a_peer),
        cmocka_unit_test(who_goes_to_sleep_by_the_bell), cmocka_unit_test(who_goes_to_sleep_at_a_place),
        cmocka_unit_test(who_looks_at_slots_no_longer),  cmocka_unit_test(who_looks_at_a_ring_no_longer),
        cmocka_unit_test(who_fences_for_both),           cmocka_unit_test(who_rings_without_a_fence_of_the_ring),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
