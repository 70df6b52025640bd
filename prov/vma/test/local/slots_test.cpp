// SPDX-License-Identifier: BSD-2-Clause
// The slot ring from both ends: every place of the ring, wrapped sequence numbers, lies on either side, two threads.
#include "fabtests/unit.hpp"

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "local/msg/bounce.hpp"
#include "local/msg/slots.hpp"

namespace {

using namespace vma::local;

struct Ring {
    alignas(128) Control control{};
    Slot slots[kSlotCount]{};
    SlotWriter writer;
    SlotReader reader;

    Ring()
    {
        writer.attach(&control, slots);
        reader.attach(&control, slots);
    }
    bool put(std::uint64_t data, std::size_t length = 0)
    {
        Slot *slot = writer.claim();
        if (!slot)
            return false;
        std::memset(slot->payload, static_cast<int>(data), length);
        writer.publish(SlotOp::region_inline, kSlotData, length, data, ~data);
        return true;
    }
    bool get(SlotHeader &header)
    {
        if (!reader.peek(header))
            return false;
        reader.consume();
        return true;
    }
    void refresh()
    {
        std::uint32_t head;
        assert_true(writer.read_head(head));
        writer.free_until(head);
    }
};

void every_fill_level_at_every_place(void **)
{
    auto ring = std::make_unique<Ring>();
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (unsigned start = 0; start < kSlotCount; ++start) {
        for (unsigned fill = 0; fill <= kSlotCount; ++fill) {
            for (unsigned i = 0; i < fill; ++i)
                assert_true(ring->put(sent++, i % (kSlotPayload + 1)));
            assert_int_equal(ring->put(0), fill < kSlotCount);
            if (fill < kSlotCount)
                ++sent;
            SlotHeader header;
            while (ring->get(header)) {
                assert_int_equal(header.op, SlotOp::region_inline);
                assert_int_equal(header.flags, kSlotData);
                if (header.data) {
                    assert_true(header.data == received);
                    assert_true(header.addr == ~received);
                }
                ++received;
            }
            assert_true(sent == received);
            assert_true(ring->reader.unpublished() || fill == 0);
            ring->reader.publish();
            ring->refresh();
            assert_int_equal(ring->writer.free_slots(), kSlotCount);
        }
    }
}

void writer_finds_its_published_slots(void **)
{
    auto ring = std::make_unique<Ring>();
    for (std::uint64_t i = 0; i < 500; ++i) {
        assert_true(ring->put(i));
        const auto first = i < kSlotCount ? 0 : static_cast<std::uint32_t>(i - kSlotCount + 1);
        for (std::uint32_t position = first; position != ring->writer.next(); ++position)
            assert_true(ring->writer.at(position).data == position);
        SlotHeader header;
        assert_true(ring->get(header));
        ring->reader.publish();
        ring->refresh();
    }
}

void a_lying_reader_is_found_out(void **)
{
    auto ring = std::make_unique<Ring>();
    for (std::uint64_t i = 0; i < 30; ++i)
        assert_true(ring->put(i));
    std::uint32_t head;
    for (const std::uint32_t lie : {31U, 32U, 60U, 61U, 1000U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
        ring->control.head.store(lie);
        assert_false(ring->writer.read_head(head));
    }
    for (std::uint32_t truth = 0; truth <= 30; ++truth) {
        ring->control.head.store(truth);
        assert_true(ring->writer.read_head(head));
        assert_int_equal(head, truth);
    }
    ring->writer.free_until(20);
    ring->control.head.store(19); // going back is a lie too
    assert_false(ring->writer.read_head(head));
}

void stale_and_foreign_sequence_numbers_are_not_ready(void **)
{
    auto ring = std::make_unique<Ring>();
    SlotHeader header;
    for (const std::uint64_t sequence : {UINT64_C(0), UINT64_C(2), UINT64_C(61), UINT64_C(0xffffffff)}) {
        ring->slots[0].word.store(sequence << 32 | 5);
        assert_false(ring->reader.peek(header));
        assert_false(ring->reader.ready());
    }
    // Any header with the right number is handed out as it is: its reader decides.
    ring->slots[0].word.store(UINT64_C(1) << 32 | 0xffffffff);
    assert_true(ring->reader.peek(header));
    assert_int_equal(header.length, 0xffff);
    assert_int_equal(header.flags, 0xff);
    assert_int_equal(header.op, 0xff);
}

void a_full_ring_asks_for_space_and_is_told(void **)
{
    auto ring = std::make_unique<Ring>();
    while (ring->put(1)) {
    }
    ring->control.want_space.store(1);
    SlotHeader header;
    assert_true(ring->get(header));
    ring->reader.publish();
    assert_int_equal(ring->reader.unchecked(), 1);
    assert_true(ring->reader.writer_wants_space());
    assert_int_equal(ring->reader.unchecked(), 0);
    assert_false(ring->reader.writer_wants_space()); // once
}

void small_copies_of_all_lengths(void **)
{
    for (std::size_t length = 0; length <= kSlotPayload; ++length) {
        std::byte from[kSlotPayload + 2];
        std::byte to[kSlotPayload + 2] = {};
        for (std::size_t i = 0; i < sizeof from; ++i)
            from[i] = static_cast<std::byte>(i + 1);
        copy_small(to + 1, from, length);
        assert_memory_equal(to + 1, from, length);
        assert_true(to[0] == std::byte{0} && to[length + 1] == std::byte{0});
    }
}

// The writer publishes one more, and decides, when the reader has seen that there is nothing and has not decided yet.
void faster_than_the_reader_that_cuts(void **)
{
    for (const bool lies : {false, true}) {
        auto ring = std::make_unique<Ring>();
        assert_true(ring->put(0));
        unsigned drained = 0;
        const auto drain = [&] {
            SlotHeader header;
            if (drained++ == 1 && !lies)
                assert_true(ring->put(1)); // in truth it was there when the cut was: the reader sees both or none
            while (ring->get(header)) {
            }
            if (drained == 1)
                ring->control.cut = kCutAt | 2;
            return true;
        };
        assert_true(ring->reader.cut(drain) == (lies ? SlotReader::Cut::lied : SlotReader::Cut::here));
        assert_int_equal(ring->reader.next(), lies ? 1 : 2);
    }
}

// A writer that never looks whether its reader has closed: there is one more at each look, and it may say that the end
// is further on. The reader is done with it at some time.
void a_writer_that_goes_on_behind_a_cut(void **)
{
    for (const bool names : {false, true}) {
        auto ring = std::make_unique<Ring>();
        std::uint64_t put = 0;
        const auto take = [&] {
            SlotHeader header;
            while (ring->get(header)) {
            }
            ring->reader.publish();
            ring->refresh();
        };
        const auto drain = [&] {
            assert_true(put <= SlotReader::kMostBehindClose + kSlotCount);
            take();
            assert_true(ring->put(put++));
            if (names) {
                take();
                ring->control.cut = kCutAt | (put + 1);
            }
            return true;
        };
        SlotReader::Cut result;
        while ((result = ring->reader.cut(drain)) == SlotReader::Cut::full) {
        }
        assert_true(result == SlotReader::Cut::lied);
        assert_true(put > SlotReader::kMostBehindClose);
    }
}

void two_threads(void **)
{
    constexpr std::uint64_t kCount = 300'000;
    auto ring = std::make_unique<Ring>();
    std::thread producer([&ring] {
        for (std::uint64_t i = 0; i < kCount;) {
            Slot *slot = ring->writer.claim();
            if (!slot) {
                std::uint32_t head;
                if (ring->writer.read_head(head))
                    ring->writer.free_until(head);
                std::this_thread::yield();
                continue;
            }
            const std::size_t length = i % (kSlotPayload + 1);
            std::memset(slot->payload, static_cast<int>(i & 0xff), length);
            ring->writer.publish(SlotOp::send_inline, 0, length, i, ~i);
            ++i;
        }
    });
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < kCount;) {
        SlotHeader header;
        if (!ring->reader.peek(header)) {
            std::this_thread::yield();
            continue;
        }
        const std::size_t length = i % (kSlotPayload + 1);
        wrong += header.data != i || header.addr != ~i || header.length != length;
        for (std::size_t at = 0; at < length; ++at)
            wrong += ring->reader.payload()[at] != static_cast<std::byte>(i & 0xff);
        ring->reader.consume();
        if (i % 3 == 0)
            ring->reader.publish();
        ++i;
        if (i == kCount || i % 50 == 0)
            ring->reader.publish();
    }
    producer.join();
    assert_true(wrong == 0);
}

void bounce_shares_wrap_and_never_overlap(void **)
{
    BounceRing ring;
    std::vector<BounceRing::Share> held;
    std::uint64_t random = 12345;
    std::uint32_t slot = 0;
    for (int round = 0; round < 100'000; ++round) {
        random = random * 6364136223846793005 + 1442695040888963407;
        BounceRing::Share share{};
        share.length = static_cast<std::uint32_t>((random >> 33) % (kBounceChunk + 1));
        if (held.size() < kSlotCount && ring.allocate(share.length, share.offset)) {
            assert_true(share.offset + share.length <= kBounceSize);
            for (const auto &other : held) {
                assert_true(share.offset + share.length <= other.offset ||
                            other.offset + other.length <= share.offset || share.length == 0 || other.length == 0);
            }
            share.slot = slot++;
            assert_true(ring.assign(share));
            held.push_back(share);
        } else {
            assert_false(held.empty()); // an empty ring has room for any share
            assert_int_equal(ring.front().slot, held.front().slot);
            ring.release_front();
            held.erase(held.begin());
        }
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(every_fill_level_at_every_place),
        cmocka_unit_test(writer_finds_its_published_slots),
        cmocka_unit_test(a_lying_reader_is_found_out),
        cmocka_unit_test(stale_and_foreign_sequence_numbers_are_not_ready),
        cmocka_unit_test(a_full_ring_asks_for_space_and_is_told),
        cmocka_unit_test(small_copies_of_all_lengths),
        cmocka_unit_test(faster_than_the_reader_that_cuts),
        cmocka_unit_test(a_writer_that_goes_on_behind_a_cut),
        cmocka_unit_test(two_threads),
        cmocka_unit_test(bounce_shares_wrap_and_never_overlap),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
