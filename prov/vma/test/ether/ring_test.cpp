// SPDX-License-Identifier: BSD-2-Clause
// Our side of a ring that is shared with the kernel, with this test in the kernel's place; and what opening a socket
// refuses before it asks the kernel for anything.
#include "fabtests/unit.hpp"

#include <cerrno>
#include <deque>
#include <random>

#include "ether/xdp/ring.hpp"
#include "ether/xdp/socket.hpp"

using namespace vma::ether;

namespace {

constexpr std::uint32_t kSize = 8;

struct Shared {
    std::uint32_t producer = 0;
    std::uint32_t consumer = 0;
    std::uint32_t flags = 0;
    std::uint64_t entries[kSize] = {};

    XdpRing<std::uint64_t> ring() { return {&producer, &consumer, &flags, entries, kSize}; }
};

void produces_in_order_and_never_over_what_is_untaken(void **)
{
    Shared shared;
    XdpRing<std::uint64_t> ring = shared.ring();
    assert_int_equal(ring.space(), kSize);
    for (std::uint64_t i = 0; i < kSize; ++i)
        ring.put(i);
    assert_int_equal(ring.space(), 0);
    assert_int_equal(shared.producer, 0); // nothing is seen yet
    ring.publish();
    assert_int_equal(shared.producer, kSize);
    assert_int_equal(ring.untaken(), kSize);
    shared.consumer = 3;
    assert_int_equal(ring.space(), 3);
    assert_int_equal(ring.untaken(), 5);
    for (std::uint64_t i = 0; i < 3; ++i) {
        assert_int_equal(shared.entries[i], i);
        ring.put(100 + i);
    }
    assert_int_equal(ring.space(), 0);
    for (std::uint64_t i = 0; i < kSize; ++i)
        assert_int_equal(shared.entries[i], i < 3 ? 100 + i : i);
}

void consumes_in_order_and_gives_back(void **)
{
    Shared shared;
    XdpRing<std::uint64_t> ring = shared.ring();
    assert_int_equal(ring.ready(), 0);
    for (std::uint64_t i = 0; i < kSize; ++i)
        shared.entries[i] = i;
    shared.producer = kSize;
    assert_int_equal(ring.ready(), kSize);
    for (std::uint64_t i = 0; i < 5; ++i)
        assert_int_equal(ring.get(), i);
    assert_int_equal(ring.ready(), 3);
    assert_int_equal(shared.consumer, 0);
    ring.give_back();
    assert_int_equal(shared.consumer, 5);
}

// Against a queue of the standard library, many times round, in random steps.
void keeps_entries_many_times_round(void **)
{
    const unsigned seed = std::random_device{}();
    print_message("seed %u\n", seed);
    std::mt19937 random(seed);
    Shared shared;
    XdpRing<std::uint64_t> producer = shared.ring();
    XdpRing<std::uint64_t> consumer = shared.ring();
    std::deque<std::uint64_t> expected;
    std::uint64_t next = 0;
    for (int i = 0; i < 100'000; ++i) {
        for (std::uint64_t n = random() % (producer.space() + 1); n != 0; --n) {
            producer.put(next);
            expected.push_back(next++);
        }
        producer.publish();
        for (std::uint64_t n = random() % (consumer.ready() + 1); n != 0; --n) {
            assert_int_equal(consumer.get(), expected.front());
            expected.pop_front();
        }
        consumer.give_back();
        assert_int_equal(producer.untaken(), expected.size());
    }
    assert_true(next > 100'000);
}

void tells_what_the_kernel_asks_for(void **)
{
    Shared shared;
    const XdpRing<std::uint64_t> ring = shared.ring();
    assert_int_equal(ring.flags() & XDP_RING_NEED_WAKEUP, 0);
    shared.flags = XDP_RING_NEED_WAKEUP;
    assert_int_equal(ring.flags() & XDP_RING_NEED_WAKEUP, XDP_RING_NEED_WAKEUP);
}

void refuses_sizes(void **)
{
    XdpSocket socket;
    const auto opened = [&](XdpSocketOptions options) { return XdpSocket::open(1, 0, options, socket); };
    assert_int_equal(opened({.receive_frames = 1000}), -EINVAL);
    assert_int_equal(opened({.receive_frames = 32}), -EINVAL);
    assert_int_equal(opened({.send_frames = 0}), -EINVAL);
    assert_int_equal(opened({.send_frames = 1u << 21}), -EINVAL);
    assert_int_equal(opened({.frame_size = 1500}), -EINVAL);
    assert_int_equal(opened({.frame_size = 8192}), -EINVAL);
    assert_int_equal(socket.fd(), -1);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(produces_in_order_and_never_over_what_is_untaken),
        cmocka_unit_test(consumes_in_order_and_gives_back),
        cmocka_unit_test(keeps_entries_many_times_round),
        cmocka_unit_test(tells_what_the_kernel_asks_for),
        cmocka_unit_test(refuses_sizes),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
