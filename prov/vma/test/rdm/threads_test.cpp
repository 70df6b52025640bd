// SPDX-License-Identifier: BSD-2-Clause
// Reliable datagrams with many threads at each end: all that is sent arrives, each sender's in its order, whoever reads
// which queue.
#include "prov/vma/test/rdm/pair.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

using namespace vma;
using namespace vma::test;

namespace {

constexpr unsigned kSenders = 3;
constexpr std::uint64_t kMessages = 1500; // of each sender
constexpr std::size_t kLongest = 150000;  // beyond what goes through the ring

struct Seen {
    std::array<std::atomic<std::uint64_t>, kSenders> received{};
    std::atomic<std::uint64_t> sent{0};
};

// Each message's first word says which of its sender's it is. Receives are posted for one tag at a time, so order can
// be seen.
void send_all(Rdm &a, fi_addr_t peer, unsigned number)
{
    std::vector<std::uint64_t> buffer(kLongest / 8 + 1);
    std::atomic<bool> done{false};
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        const std::size_t length = i % 50 == 7 ? kLongest : i % 10 == 3 ? 20000 : 16;
        buffer[0] = i;
        const iovec iov{buffer.data(), length};
        fi_msg_tagged message{};
        message.msg_iov = &iov;
        message.iov_count = 1;
        message.addr = peer;
        message.tag = number;
        const bool injected = length == 16;
        message.context = injected ? nullptr : &done;
        done.store(false);
        REQUIRE(again([&] { return fi_tsendmsg(a.ep, &message, injected ? FI_INJECT : FI_COMPLETION); }, {}) == 0);
        while (!injected && !done.load(std::memory_order_acquire)) // some thread reads it
            std::this_thread::yield();
    }
}

// Reads both queues of an endpoint until everything is there.
void read_all(Rdm &side, Seen &seen, const std::atomic<bool> &over)
{
    Entry entry;
    while (!over.load(std::memory_order_acquire)) {
        bool idle = true;
        for (fid_cq *cq : {side.cq, side.tx_cq}) {
            if (!read_entry(cq, entry))
                continue;
            idle = false;
            REQUIRE(entry.error.err == 0);
            if (entry.told.flags & FI_SEND) {
                seen.sent.fetch_add(1);
                if (entry.told.op_context != nullptr)
                    static_cast<std::atomic<bool> *>(entry.told.op_context)->store(true, std::memory_order_release);
            } else {
                const auto *const buffer = static_cast<std::uint64_t *>(entry.told.op_context);
                std::atomic<std::uint64_t> &next = seen.received[entry.told.tag];
                REQUIRE(buffer[0] == next.load());
                // One receive of a tag is posted at a time: nobody else has this number.
                next.store(buffer[0] + 1);
                REQUIRE(fi_trecv(side.ep, entry.told.op_context, kLongest + 8, nullptr, FI_ADDR_UNSPEC, entry.told.tag,
                                 0, entry.told.op_context) == 0);
            }
        }
        if (idle)
            std::this_thread::yield();
    }
}

void many_threads(const RdmSetup &setup)
{
    OwnDirectory directory;
    Rdm a(setup);
    Rdm b(setup);
    const fi_addr_t to_b = a.insert(b.name);
    Seen at_a;
    Seen at_b;
    std::vector<std::vector<std::uint64_t>> buffers(kSenders, std::vector<std::uint64_t>(kLongest / 8 + 1));
    for (unsigned i = 0; i < kSenders; ++i)
        REQUIRE(fi_trecv(b.ep, buffers[i].data(), kLongest + 8, nullptr, FI_ADDR_UNSPEC, i, 0, buffers[i].data()) == 0);
    std::atomic<bool> over{false};
    std::vector<std::thread> readers;
    for (int i = 0; i < 2; ++i) {
        readers.emplace_back([&] { read_all(a, at_a, over); });
        readers.emplace_back([&] { read_all(b, at_b, over); });
    }
    std::vector<std::thread> senders;
    for (unsigned i = 0; i < kSenders; ++i)
        senders.emplace_back([&, i] { send_all(a, to_b, i); });
    for (std::thread &thread : senders)
        thread.join();
    for (unsigned i = 0; i < kSenders; ++i) {
        while (at_b.received[i].load() != kMessages)
            std::this_thread::yield();
    }
    over.store(true);
    for (std::thread &thread : readers)
        thread.join();
}

void one_queue(void **)
{
    many_threads({});
}
void two_queues(void **)
{
    many_threads({.two_queues = true});
}
void without_single_copy(void **)
{
    many_threads({.two_queues = true, .single_copy = false});
}
void without_sleepers(void **)
{
    many_threads({.wait = FI_WAIT_NONE});
}
void between_hosts(void **)
{
    many_threads({.network = true});
}

// Rings come and go among those that are looked at, and the senders leave their fences to who does: no message is left
// in one of the others. All of a sender's last messages are taken before it sends the next, so nothing that comes later
// makes up for one that was overlooked.
void more_than_are_looked_at(void **)
{
    constexpr unsigned kThreads = 4;
    constexpr unsigned kEach = 6; // endpoints of a thread
    constexpr std::uint32_t kRounds = 3000;
    OwnDirectory directory;
    const RdmSetup setup{.wait = FI_WAIT_NONE};
    Rdm reader(setup);
    std::vector<std::unique_ptr<Rdm>> senders;
    std::vector<fi_addr_t> addresses;
    for (unsigned i = 0; i < kThreads * kEach; ++i)
        addresses.push_back(senders.emplace_back(std::make_unique<Rdm>(setup))->insert(reader.name));
    std::array<std::atomic<std::uint32_t>, kThreads> taken{};
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            std::uint64_t state = thread + 1;
            for (std::uint32_t round = 0; round < kRounds; ++round) {
                state = state * 6364136223846793005U + 1442695040888963407U;
                const std::size_t one = thread * kEach + (state >> 33) % kEach;
                const Rdm &sender = *senders[one];
                REQUIRE(again([&] { return fi_tinject(sender.ep, &round, sizeof round, addresses[one], thread); },
                              {sender.cq}) == 0);
                while (taken[thread].load(std::memory_order_acquire) != round + 1)
                    std::this_thread::yield();
            }
        });
    }
    std::array<std::uint32_t, kThreads> buffers{};
    const auto post = [&](std::uint64_t tag) {
        REQUIRE(fi_trecv(reader.ep, &buffers[tag], sizeof buffers[tag], nullptr, FI_ADDR_UNSPEC, tag, 0, nullptr) == 0);
    };
    for (unsigned thread = 0; thread < kThreads; ++thread)
        post(thread);
    for (std::uint32_t done = 0; done < kThreads * kRounds; ++done) {
        const Entry entry = next_of(reader.cq);
        REQUIRE(entry.error.err == 0 && buffers[entry.told.tag] == taken[entry.told.tag].load());
        post(entry.told.tag);
        taken[entry.told.tag].fetch_add(1, std::memory_order_release);
    }
    for (std::thread &thread : threads)
        thread.join();
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_queue),        cmocka_unit_test(two_queues),    cmocka_unit_test(without_single_copy),
        cmocka_unit_test(without_sleepers), cmocka_unit_test(between_hosts), cmocka_unit_test(more_than_are_looked_at),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
