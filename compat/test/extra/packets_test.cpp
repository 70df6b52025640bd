// SPDX-License-Identifier: BSD-2-Clause
// Records of packets that a program holds (SocketXtreme): taken by one thread, given back by others, without a lock.
#include "fabtests/unit.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "compat/src/extra/packets.hpp"
#include "compat/src/table/stream.hpp"

using namespace vma;

namespace {

constexpr std::uint32_t kThreads = 3;
constexpr std::uint32_t kEach = 60'000; // more in all than there are records
constexpr std::size_t kMostHeld = 1000;

// cmocka's asserts are for one thread.
#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                               \
            std::abort();                                                                                              \
        }                                                                                                              \
    } while (false)

struct Shared {
    std::mutex lock;
    std::vector<extra::Packet *> held;
    std::unique_ptr<sock::Socket> socket = std::make_unique<sock::Socket>();

    void add(extra::Packet *packet)
    {
        std::unique_lock guard(lock);
        while (held.size() >= kMostHeld) {
            guard.unlock();
            std::this_thread::yield();
            guard.lock();
        }
        held.push_back(packet);
    }
};

void take(Shared &shared, std::uint32_t who)
{
    extra::Packet *spares = nullptr;
    for (std::uint32_t i = 0; i < kEach; ++i) {
        extra::Packet *const packet = extra::take_spare(spares);
        REQUIRE(packet != nullptr);
        std::memset(packet->room, static_cast<int>(who + i) & 0xff, 24);
        extra::hold_own(*packet, *shared.socket, who, 24);
        REQUIRE(extra::add(*packet) == 2);
        shared.add(packet);
    }
}

bool give_back_one(Shared &shared)
{
    extra::Packet *packet = nullptr;
    {
        const std::lock_guard guard(shared.lock);
        if (shared.held.empty())
            return false;
        packet = shared.held.back();
        shared.held.pop_back();
    }
    REQUIRE(extra::find_packet(packet) == packet && packet->buffer.len == 24);
    const auto *const bytes = static_cast<const std::uint8_t *>(packet->buffer.payload);
    for (std::size_t i = 1; i < 24; ++i)
        REQUIRE(bytes[i] == bytes[0]);
    REQUIRE(extra::drop(*packet) == 1);
    REQUIRE(extra::drop(*packet) == 0);
    return true;
}

void records_go_round_between_threads(void **)
{
    Shared shared;
    std::vector<std::thread> threads;
    threads.reserve(2 * kThreads);
    std::atomic<bool> over{false};
    for (std::uint32_t who = 0; who < kThreads; ++who)
        threads.emplace_back(take, std::ref(shared), who);
    for (std::uint32_t who = 0; who < kThreads; ++who)
        threads.emplace_back([&] {
            while (give_back_one(shared) || !over)
                std::this_thread::yield();
        });
    for (std::uint32_t who = 0; who < kThreads; ++who)
        threads[who].join();
    over = true;
    for (std::uint32_t who = 0; who < kThreads; ++who)
        threads[kThreads + who].join();
    assert_false(extra::is_full());
}

void what_is_back_is_nobodys(void **)
{
    const auto socket = std::make_unique<sock::Socket>();
    extra::Packet *spares = nullptr;
    extra::Packet *const packet = extra::take_spare(spares);
    assert_non_null(packet);
    assert_null(extra::find_packet(packet)); // nobody holds it yet
    extra::hold_own(*packet, *socket, 0, 0);
    assert_ptr_equal(extra::find_packet(packet), packet);
    assert_null(extra::find_packet(reinterpret_cast<const char *>(packet) + 8));
    assert_int_equal(extra::drop(*packet), 0);
    assert_int_equal(extra::drop(*packet), -1);
    assert_int_equal(extra::add(*packet), -1);
    assert_null(extra::find_packet(packet));
}

// All there are, and no more; those that come back are there again.
void records_come_to_an_end(void **)
{
    const auto socket = std::make_unique<sock::Socket>();
    std::vector<extra::Packet *> held;
    extra::Packet *spares = nullptr;
    while (extra::Packet *const packet = extra::take_spare(spares)) {
        extra::hold_own(*packet, *socket, 0, 8);
        held.push_back(packet);
    }
    assert_true(held.size() >= extra::kMostPackets - 100 && held.size() <= extra::kMostPackets + 100);
    assert_true(extra::is_full());
    assert_null(extra::reserve_packets(1));
    for (extra::Packet *packet : held)
        REQUIRE(extra::drop(*packet) == 0);
    assert_false(extra::is_full());
    assert_non_null(extra::reserve_packets(1));
}

} // namespace

int main()
{
    static const CMUnitTest tests[] = {
        cmocka_unit_test(records_go_round_between_threads),
        cmocka_unit_test(what_is_back_is_nobodys),
        cmocka_unit_test(records_come_to_an_end),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
