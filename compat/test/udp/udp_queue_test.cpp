// SPDX-License-Identifier: BSD-2-Clause
// The queue of a UDP socket between a thread that fills it and one that empties it, and the header that stands before
// each datagram: what went in comes out, once, whole and in order; a header that is too short is none.
#include "fabtests/unit.hpp"

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "compat/src/base/memory.hpp"
#include "compat/src/udp/queue.hpp"
#include "compat/src/udp/wire.hpp"

using namespace vma::sock::udp;

namespace {

constexpr std::size_t kLimit = 212992;
constexpr std::size_t kLongest = 65507;

bool push(Queue &queue, unsigned number, std::size_t length)
{
    std::vector<unsigned char> bytes(length, static_cast<unsigned char>(number));
    const iovec parts[] = {{bytes.data(), length / 2}, {bytes.data() + length / 2, length - length / 2}};
    About about = {};
    about.lost = number;
    return queue.push(about, parts, 2, length);
}

// False: none there.
bool pop(Queue &queue, unsigned number)
{
    Queued *const first = queue.front();
    if (first == nullptr)
        return false;
    assert_int_equal(first->about.lost, number);
    for (std::size_t i = 0; i < first->length; ++i)
        assert_int_equal(first->bytes()[i], static_cast<unsigned char>(number));
    queue.pop();
    return true;
}

// Nor does it lose what it has by a larger limit that there is no memory for.
void a_reserved_queue_needs_no_memory(void **)
{
    Queue queue;
    queue.set_limit(kLimit);
    assert_true(queue.reserve());
    Queue other;
    other.set_limit(kLimit);
    rlimit before = {};
    assert_int_equal(::getrlimit(RLIMIT_AS, &before), 0);
    const rlimit none = {0, before.rlim_max};
    assert_int_equal(::setrlimit(RLIMIT_AS, &none), 0);
    const bool there_is_none = ::mmap(nullptr, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
    const bool reserved = other.reserve();
    queue.set_limit(4 * kLimit);
    const bool pushed = queue.push(About{}, nullptr, 0, 0);
    assert_int_equal(::setrlimit(RLIMIT_AS, &before), 0);
    assert_true(pushed);
    assert_true(pop(queue, 0));
    queue.release();
    if (there_is_none) {
        assert_false(reserved);
        return;
    }
    other.release();
    UNIT_SKIP("the machine is an emulator's, which does not limit a program's memory");
}

// Most of the time it is empty when the next one comes, so that it starts again at its beginning: the reader must not
// take that moment for a filled queue.
void two_threads(void **)
{
    constexpr unsigned kCount = 60000;
    const unsigned seed = std::random_device{}();
    print_message("seed %u\n", seed);
    Queue queue;
    queue.set_limit(kLimit);
    std::thread filler([&queue, seed] {
        std::minstd_rand random(seed);
        for (unsigned number = 0; number < kCount;) {
            const std::size_t length = random() % 16 == 0 ? random() % kLongest : random() % 300;
            if (push(queue, number, length))
                ++number;
            else
                sched_yield(); // the reader may want this processor
        }
    });
    for (unsigned number = 0; number < kCount;) {
        if (pop(queue, number))
            ++number;
        else
            sched_yield();
    }
    filler.join();
    assert_true(queue.empty());
    queue.release();
}

void full_queue_takes_no_more(void **)
{
    Queue queue;
    queue.set_limit(kLimit);
    unsigned count = 0;
    while (push(queue, count, 1000))
        ++count;
    assert_in_range(count, kLimit / 1100, kLimit / 1000 + 1);
    for (unsigned number = 0; number < count; ++number)
        assert_true(pop(queue, number));
    assert_false(pop(queue, 0));
    assert_true(push(queue, 7, kLongest)); // the longest fits wherever it begins
    assert_true(pop(queue, 7));
    queue.release();
}

// One that was refused where the ring ends is not counted: the next one has the room that the reader has made.
void a_refused_one_leaves_no_trace(void **)
{
    Queue queue;
    queue.set_limit(1500);
    unsigned number = 0;
    assert_true(push(queue, number, 1000));
    for (std::size_t filled = 0; filled < (std::size_t{256} << 10) - kLongest; filled += 1000) {
        assert_true(push(queue, number + 1, 1000));
        assert_true(pop(queue, number++));
    }
    assert_true(push(queue, number + 1, 1000));
    assert_false(push(queue, 0, kLongest));
    assert_true(pop(queue, number++));
    assert_true(push(queue, number + 1, 1000));
    assert_true(pop(queue, number++));
    assert_true(pop(queue, number));
    assert_true(queue.empty());
    queue.release();
}

void headers_come_back(void **)
{
    About about = {};
    about.source = vma::sock::mapped({htonl(0x7f000001)});
    about.destination = vma::sock::mapped({htonl(0x7f000002)});
    about.source_port = htons(4000);
    about.tos = 0x28;
    about.ttl = 33;
    about.interface = 1;
    about.lost = 5;
    for (const bool v6 : {false, true}) {
        std::uint8_t bytes[kIpv6Header];
        const std::uint64_t to = make_to(0xfffff, 0xdeadbeef) | (v6 ? kToIpv6 : 0);
        assert_int_equal(index_of(to), 0xfffff);
        assert_int_equal(cookie_of(to), 0xdeadbeef);
        const std::size_t length = write_header(about, v6, bytes);
        About read = {};
        assert_int_equal(read_header(to, bytes, length, read), length);
        assert_memory_equal(&read.source, &about.source, sizeof read.source);
        assert_memory_equal(&read.destination, &about.destination, sizeof read.destination);
        assert_int_equal(read.source_port, about.source_port);
        assert_int_equal(read.ttl, about.ttl);
        assert_int_equal(read.lost, about.lost);
        for (std::size_t less = 0; less < length; ++less)
            assert_int_equal(read_header(to, bytes, less, read), 0);
    }
}

int g_given_back = 0;

void give_back(fi_vma_lender *, const void *, std::size_t)
{
    ++g_given_back;
}

void *allocate_nothing(std::size_t)
{
    return nullptr;
}

// As a fork makes them, whatever the program's allocator has to give.
void owned_loans_stay_whole(void **)
{
    static fi_vma_lender lender = {give_back, nullptr};
    constexpr std::size_t kLengths[] = {0, 1, 1472, 60000};
    std::vector<std::uint8_t> frame(kLengths[3], 7);
    for (const vma::memory::Allocate allocate :
         {vma::memory::Allocate{&::malloc}, vma::memory::Allocate{&allocate_nothing}}) {
        Queue queue;
        queue.set_limit(kLimit);
        g_given_back = 0;
        vma::memory::use_allocator(allocate, &::free);
        for (const std::size_t length : kLengths) {
            About about = {};
            about.lost = 7;
            assert_true(queue.push(about, {&lender, frame.data(), static_cast<std::uint32_t>(length), 0}));
        }
        queue.own_loans();
        assert_int_equal(g_given_back, std::size(kLengths));
        for (const std::size_t length : kLengths) {
            assert_int_equal(queue.front()->length, length);
            assert_true(pop(queue, 7));
        }
        queue.release();
    }
    vma::memory::use_allocator(&::malloc, &::free);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(two_threads),
        cmocka_unit_test(a_reserved_queue_needs_no_memory),
        cmocka_unit_test(full_queue_takes_no_more),
        cmocka_unit_test(a_refused_one_leaves_no_trace),
        cmocka_unit_test(headers_come_back),
        cmocka_unit_test(owned_loans_stay_whole),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
