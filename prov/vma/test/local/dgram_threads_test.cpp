// SPDX-License-Identifier: BSD-2-Clause
// Several threads at one datagram endpoint: they send, read and sleep at once, and every datagram arrives once. Above
// all for ThreadSanitizer, with which these must pass too.
#include "prov/vma/test/local/dgram_pair.hpp"

#include <array>
#include <atomic>
#include <poll.h>
#include <sched.h>
#include <thread>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint32_t kEach = 4000; // datagrams of one sender

struct Head {
    std::uint32_t sender;
    std::uint32_t number;
};

constexpr std::size_t kLongest = 700;

std::size_t fill(Head head, unsigned char *out)
{
    const std::size_t length = sizeof head + head.number * 37 % (kLongest - sizeof head);
    std::memcpy(out, &head, sizeof head);
    for (std::size_t i = sizeof head; i < length; ++i)
        out[i] = static_cast<unsigned char>(head.sender * 91 + head.number + i);
    return length;
}

Head check(const void *data, std::size_t length)
{
    Head head{};
    unsigned char wanted[kLongest];
    REQUIRE(length >= sizeof head);
    std::memcpy(&head, data, sizeof head);
    REQUIRE(fill(head, wanted) == length && std::memcmp(wanted, data, length) == 0);
    return head;
}

// Whoever finds no room tries again: nothing is lost.
void send_all(const Dgram &from, fi_addr_t to, std::uint32_t sender, std::uint32_t count = kEach)
{
    unsigned char bytes[kLongest];
    for (std::uint32_t number = 0; number < count; ++number) {
        const iovec iov{bytes, fill({sender, number}, bytes)};
        fi_msg message{};
        message.msg_iov = &iov;
        message.iov_count = 1;
        message.addr = to;
        ssize_t result;
        while ((result = fi_sendmsg(from.ep, &message, FI_VMA_TELL_DROP)) == -FI_EAGAIN)
            sched_yield();
        REQUIRE(result == 0);
    }
}

constexpr std::uint32_t kSenders = 2;
constexpr std::uint32_t kVisitors = 20; // that come, send some, and go
constexpr std::uint32_t kOfVisitor = 50;
constexpr std::uint32_t kTotal = kSenders * kEach + kVisitors * kOfVisitor;

struct Seen {
    std::array<std::atomic<bool>, kSenders * kEach> of_senders{};
    std::array<std::atomic<bool>, kVisitors * kOfVisitor> of_visitors{};
    std::atomic<std::uint32_t> total{0};

    void mark(Head head)
    {
        REQUIRE(head.sender < kSenders ? head.number < kEach
                                       : head.sender < kSenders + kVisitors && head.number < kOfVisitor);
        auto &place = head.sender < kSenders ? of_senders[head.sender * kEach + head.number]
                                             : of_visitors[(head.sender - kSenders) * kOfVisitor + head.number];
        REQUIRE(!place.exchange(true));
        total.fetch_add(1);
    }
};

struct Slot {
    unsigned char bytes[kLongest];
};

void post(const Dgram &at, Slot &slot)
{
    const iovec iov{slot.bytes, sizeof slot.bytes};
    fi_msg message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = FI_ADDR_UNSPEC;
    message.context = &slot;
    REQUIRE(fi_recvmsg(at.ep, &message, FI_COMPLETION) == 0);
}

// Sleeps between datagrams. Who has seen the end wakes the next one.
void read_all(const Dgram &at, Seen &seen)
{
    while (seen.total.load() < kTotal) {
        fi_cq_data_entry entry{};
        const ssize_t got = fi_cq_sread(at.cq, &entry, 1, nullptr, kPatience);
        if (got == -FI_EAGAIN) {
            REQUIRE(seen.total.load() == kTotal); // signalled
            continue;
        }
        REQUIRE(got == 1);
        Slot &slot = *static_cast<Slot *>(entry.op_context);
        seen.mark(check(slot.bytes, entry.len));
        post(at, slot);
    }
    REQUIRE(fi_cq_signal(at.cq) == 0);
}

// Senders and readers at one endpoint that sends to itself, while others come and go.
void all_at_one_endpoint(void **)
{
    OwnDirectory directory;
    Dgram a("0", FI_SELECTIVE_COMPLETION);
    const fi_addr_t to = a.insert(a.name);
    const auto seen = std::make_unique<Seen>();
    std::vector<Slot> slots(64);
    for (Slot &slot : slots)
        post(a, slot);
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] { read_all(a, *seen); });
    for (std::uint32_t i = 0; i < kSenders; ++i)
        threads.emplace_back([&, i] { send_all(a, to, i); });
    threads.emplace_back([&] {
        for (std::uint32_t i = 0; i < kVisitors; ++i) {
            Dgram visitor("0", FI_SELECTIVE_COMPLETION);
            send_all(visitor, visitor.insert(a.name), kSenders + i, kOfVisitor);
            static_cast<void>(a.drops(FI_OPT_VMA_RX_DROPS));
        }
    });
    for (std::thread &thread : threads)
        thread.join();
    assert_int_equal(seen->total.load(), kTotal);
    assert_int_equal(fi_cntr_read(a.receives), kTotal);
    assert_int_equal(fi_cntr_read(a.sends), kSenders * kEach);
}

// What the taker keeps has no lock but the queue's.
struct Ordered {
    std::uint32_t next[kSenders] = {};
    std::uint32_t calls = 0;
    std::atomic<std::uint32_t> total{0};
    fi_vma_taker option{take, this, nullptr};

    static int take(void *context, const void *payload, std::size_t length, std::uint64_t)
    {
        Ordered &self = *static_cast<Ordered *>(context);
        if (++self.calls % 7 == 0)
            return 0;
        const Head head = check(payload, length);
        REQUIRE(head.sender < kSenders && head.number == self.next[head.sender]++);
        self.total.fetch_add(1);
        return 1;
    }
};

// Threads that poll, and one that sleeps on the descriptor: a taker is called by any of them, one at a time, in order.
void a_taker_and_several_readers(void **)
{
    OwnDirectory directory;
    Ordered taker;
    Dgram a("0", FI_SELECTIVE_COMPLETION);
    Dgram b({.taker = &taker.option});
    const fi_addr_t to = a.insert(b.name);
    const auto done = [&] { return taker.total.load() == kSenders * kEach; };
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
            while (!done()) {
                REQUIRE(fi_cq_read(b.cq, nullptr, 0) == -FI_EAGAIN);
                sched_yield();
            }
        });
    }
    threads.emplace_back([&] {
        fid *waits[] = {&b.cq->fid};
        pollfd waiting{-1, POLLIN, 0};
        REQUIRE(fi_control(&b.cq->fid, FI_GETWAIT, &waiting.fd) == 0);
        while (!done()) {
            REQUIRE(fi_cq_read(b.cq, nullptr, 0) == -FI_EAGAIN);
            // The others may take the last one between the look and the sleep, so that nothing comes any more.
            if (fi_trywait(b.fabric, waits, 1) == 0)
                REQUIRE(poll(&waiting, 1, 10) >= 0);
        }
    });
    for (std::uint32_t i = 0; i < kSenders; ++i)
        threads.emplace_back([&, i] { send_all(a, to, i); });
    for (std::thread &thread : threads)
        thread.join();
    assert_int_equal(taker.total.load(), kSenders * kEach);
    assert_int_equal(fi_cntr_read(b.receives), kSenders * kEach);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(all_at_one_endpoint),
        cmocka_unit_test(a_taker_and_several_readers),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
