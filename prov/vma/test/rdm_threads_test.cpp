// SPDX-License-Identifier: BSD-2-Clause
// Reliable datagrams with many threads at each end: all that is sent arrives, each sender's in its order, whoever reads which queue.
#include "prov/vma/test/rdm_pair.hpp"

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

// Each message's first word says which of its sender's it is. Receives are posted for one tag at a time, so order can be seen.
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

void many_threads(bool two_queues, bool single_copy)
{
    OwnDirectory directory;
    const RdmSetup setup{.two_queues = two_queues, .single_copy = single_copy};
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
    many_threads(false, true);
}
void two_queues(void **)
{
    many_threads(true, true);
}
void without_single_copy(void **)
{
    many_threads(true, false);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_queue),
        cmocka_unit_test(two_queues),
        cmocka_unit_test(without_single_copy),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
