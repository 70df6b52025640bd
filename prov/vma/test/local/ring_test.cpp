// SPDX-License-Identifier: BSD-2-Clause
// The ring of datagrams and its spill between a writer and a reader that is fast or slow at random: what was placed
// arrives once, whole and in order, whatever part it went through; and marks that make no sense lead nowhere.
#include "prov/vma/test/local/pair.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "local/ring/reader.hpp"
#include "local/ring/writer.hpp"

using namespace vma;
using namespace vma::test;
using local::RingMemory;
using local::RingReader;
using local::RingWriter;

namespace {

struct Unmap {
    void operator()(RingMemory *memory) const { munmap(memory, sizeof(RingMemory)); }
};
using Memory = std::unique_ptr<RingMemory, Unmap>;

Memory make_memory()
{
    void *const memory =
        mmap(nullptr, sizeof(RingMemory), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    return Memory(static_cast<RingMemory *>(memory));
}

struct Flow {
    explicit Flow(RingMemory *where) : memory(where)
    {
        writer.attach(where);
        reader.attach(where);
    }
    static std::size_t length_of(std::uint64_t number)
    {
        const std::uint64_t mixed = number * UINT64_C(0x9e3779b97f4a7c15) >> 32;
        return sizeof number + mixed % (mixed % 31 == 0 ? local::kMaxDatagram - sizeof number : std::size_t{400});
    }
    std::size_t length(std::uint64_t number) const { return std::min(length_of(number), longest); }
    // The next one. False: no room.
    bool write(bool may_spill)
    {
        return put(length(written), [&](std::size_t bytes) {
            std::byte *const place = writer.claim(bytes);
            return place != nullptr ? place : writer.claim_behind(bytes, may_spill);
        });
    }
    bool write_low()
    {
        return put(length(written), [&](std::size_t bytes) { return writer.claim_low(bytes); });
    }
    template <typename Claim> bool put(std::size_t length, Claim &&claim)
    {
        std::byte *const place = claim(length);
        if (place == nullptr)
            return false;
        in_spill = place >= memory->spill;
        at = static_cast<std::size_t>(place - memory->data) - sizeof(local::Record);
        std::memset(place, static_cast<int>(written & 0xff), length);
        std::memcpy(place, &written, sizeof written);
        writer.publish(length, true, ~written);
        ++written;
        return true;
    }
    // False: none there.
    bool read()
    {
        local::Arrived arrived{};
        const RingReader::Peek peek = reader.peek(arrived);
        REQUIRE(peek != RingReader::Peek::lie);
        if (peek == RingReader::Peek::nothing)
            return false;
        std::uint64_t number = 0;
        std::memcpy(&number, arrived.payload, sizeof number);
        REQUIRE(number == got && arrived.length == length(got) && arrived.data == ~got);
        for (std::size_t i = sizeof number; i < arrived.length; ++i)
            REQUIRE(arrived.payload[i] == static_cast<std::byte>(got & 0xff));
        if (keeps && reader.may_keep(arrived)) {
            reader.keep(arrived);
            loans.push_back({arrived.payload, arrived.length, number});
        }
        reader.consume(arrived);
        ++got;
        return true;
    }
    void give_back(std::size_t place)
    {
        const Loan loan = loans[place];
        loans[place] = loans.back();
        loans.pop_back();
        std::uint64_t number = 0;
        std::memcpy(&number, loan.payload, sizeof number);
        REQUIRE(number == loan.number);
        for (std::size_t i = sizeof number; i < loan.length; ++i)
            REQUIRE(loan.payload[i] == static_cast<std::byte>(number & 0xff));
        reader.unkeep(loan.payload, loan.length);
    }
    void read_all()
    {
        while (read()) {
        }
        reader.publish();
    }

    struct Loan {
        const std::byte *payload;
        std::size_t length;
        std::uint64_t number;
    };
    RingMemory *memory;
    bool keeps = false;
    std::vector<Loan> loans;
    RingWriter writer;
    RingReader reader;
    std::uint64_t written = 0, got = 0;
    std::size_t longest = local::kMaxDatagram;
    bool in_spill = false;
    std::size_t at = 0; // where the last one begins
};

void fast_and_slow(void **)
{
    const Memory memory = make_memory();
    Random random;
    Flow flow(memory.get());
    unsigned refused = 0, spilled = 0;
    while (flow.written < 60000) {
        const std::uint64_t most = random.below(16) == 0 ? 20000 : 300;
        for (std::uint64_t i = random.below(most); i > 0; --i) {
            if (!flow.write(random.below(50) != 0))
                ++refused;
            else
                spilled += flow.in_spill ? 1 : 0;
        }
        for (std::uint64_t i = random.below(random.below(8) == 0 ? 30000 : 300); i > 0 && flow.read(); --i)
            if (random.below(3) == 0)
                flow.reader.publish();
        flow.reader.publish();
    }
    flow.read_all();
    assert_int_equal(flow.got, flow.written);
    assert_true(refused > 100 && spilled > 5000);
}

// Records that the reader keeps for a while, some for long, stay whole, and what follows finds its way between them.
void kept_records(void **)
{
    const Memory memory = make_memory();
    Random random;
    Flow flow(memory.get());
    unsigned refused = 0, spilled = 0;
    while (flow.written < 60000) {
        for (std::uint64_t i = random.below(random.below(16) == 0 ? 20000 : 300); i > 0; --i) {
            if (!flow.write(random.below(50) != 0))
                ++refused;
            else
                spilled += flow.in_spill ? 1 : 0;
        }
        for (std::uint64_t i = random.below(random.below(8) == 0 ? 30000 : 300); i > 0; --i) {
            flow.keeps = random.below(3) == 0;
            if (!flow.read())
                break;
            if (random.below(3) == 0)
                flow.reader.publish();
            while (flow.loans.size() > 40 || (!flow.loans.empty() && random.below(8) == 0))
                flow.give_back(random.below(flow.loans.size()));
        }
        flow.reader.publish();
    }
    flow.read_all();
    assert_int_equal(flow.got, flow.written);
    assert_true(refused > 100 && spilled > 1000);
    while (!flow.loans.empty())
        flow.give_back(0);
}

// A receiver that keeps all it may leaves room for what it doesn't keep.
void keeps_half(void **)
{
    const Memory memory = make_memory();
    Flow flow(memory.get());
    flow.keeps = true;
    for (int i = 0; i < 20000; ++i) {
        REQUIRE(flow.write(true));
        flow.read_all();
    }
    assert_true(flow.loans.size() > 100);
    while (!flow.loans.empty())
        flow.give_back(flow.loans.size() - 1);
}

// What is given back soon is waited for in front, and the writer never looks at the bits; what isn't is marked there,
// and the head goes on.
void the_head_waits_a_little(void **)
{
    constexpr std::size_t kLength = 1472;
    const Memory memory = make_memory();
    Flow flow(memory.get());
    std::vector<const std::byte *> loans;
    const auto pass_one = [&](bool keeps) {
        REQUIRE(flow.writer.claim(kLength) != nullptr);
        flow.writer.publish(kLength, false, 0);
        local::Arrived arrived{};
        REQUIRE(flow.reader.peek(arrived) == RingReader::Peek::datagram);
        if (keeps) {
            REQUIRE(flow.reader.may_keep(arrived));
            flow.reader.keep(arrived);
            loans.push_back(arrived.payload);
        }
        flow.reader.consume(arrived);
        flow.reader.publish();
    };
    const auto give_back_first = [&] {
        flow.reader.unkeep(loans.front(), kLength);
        loans.erase(loans.begin());
    };
    for (int i = 0; i < 3000; ++i) {
        pass_one(true);
        if (loans.size() > 8)
            give_back_first();
    }
    assert_int_equal(memory->control.keeps.load(), 0);
    while (!loans.empty())
        give_back_first();
    pass_one(true);
    const std::uint64_t head = memory->control.head.load();
    for (int i = 0; i < 10; ++i)
        pass_one(false);
    assert_int_equal(memory->control.head.load(), head);
    for (int i = 0; i < 30; ++i)
        pass_one(false);
    assert_true(memory->control.head.load() > head);
    assert_int_equal(memory->control.keeps.load(), 1);
    give_back_first();
    for (const local::KeptWord &word : memory->kept)
        assert_int_equal(word.load(), 0);
}

// Who reads leaves, and the last loan ends it.
void the_last_one_ends_it(void **)
{
    for (const bool early : {false, true}) {
        const Memory memory = make_memory();
        Flow flow(memory.get());
        flow.keeps = true;
        for (int i = 0; i < 3; ++i)
            REQUIRE(flow.write(false));
        flow.read_all();
        REQUIRE(flow.loans.size() == 3);
        if (early)
            assert_false(flow.reader.unkeep(flow.loans[1].payload, flow.loans[1].length));
        assert_false(flow.reader.leave());
        assert_false(flow.reader.unkeep(flow.loans[2].payload, flow.loans[2].length));
        if (!early)
            assert_false(flow.reader.unkeep(flow.loans[1].payload, flow.loans[1].length));
        assert_true(flow.reader.unkeep(flow.loans[0].payload, flow.loans[0].length));
    }
}

// A receiver whose bits say that it keeps everything gets nothing, and the writer comes back from each try.
void keeps_all(void **)
{
    const Memory memory = make_memory();
    Flow flow(memory.get());
    memory->control.keeps = 1;
    for (local::KeptWord &word : memory->kept)
        word = ~UINT64_C(0);
    for (local::KeptWord &word : memory->kept_spill)
        word = ~UINT64_C(0);
    unsigned written = 0;
    for (int i = 0; i < 5000; ++i) {
        written += flow.write(true) ? 1 : 0;
        flow.read_all();
    }
    assert_true(written < 5000);
}

// A receiver that caught up is served from the ring again, and each time that it is behind the spill begins at its
// start.
void comes_back(void **)
{
    const Memory memory = make_memory();
    Flow flow(memory.get());
    const std::byte *const far = memory->spill + (std::size_t{2} << 20);
    for (int round = 0; round < 50; ++round) {
        while (flow.write(false)) {
        }
        assert_false(flow.in_spill);
        for (int i = 0; i < 100; ++i)
            REQUIRE(flow.write(true) && flow.in_spill);
        flow.read_all();
        REQUIRE(flow.write(false));
        flow.read_all();
    }
    assert_int_equal(flow.got, flow.written);
    for (const std::byte *at = far; at != memory->spill + local::kSpillBytes; at += 4096)
        REQUIRE(*at == std::byte{0});
}

// Small ones that are taken at once touch no more than the ring's start.
void stays_low(void **)
{
    const Memory memory = make_memory();
    Flow flow(memory.get());
    flow.longest = 4000;
    unsigned returns = 0;
    for (std::size_t before = 0; flow.written < 50000; before = flow.at) {
        REQUIRE(flow.write_low());
        REQUIRE(flow.at < local::kLowBytes);
        returns += flow.at < before ? 1 : 0;
        flow.read_all();
    }
    assert_int_equal(flow.got, flow.written);
    assert_true(returns > 200);
    const std::byte *const used = memory->data + local::kLowBytes + local::record_bytes(flow.longest);
    assert_true(std::all_of(used, static_cast<const std::byte *>(memory->data) + local::kRingBytes,
                            [](std::byte byte) { return byte == std::byte{0}; }));
}

// Who is behind gets the whole ring filled, and comes back to its start, also when some records are kept.
void low_and_slow(void **)
{
    for (const bool keeps : {false, true}) {
        const Memory memory = make_memory();
        Random random;
        Flow flow(memory.get());
        unsigned refused = 0, high = 0, early = 0;
        for (std::size_t before = 0; flow.written < 60000;) {
            for (std::uint64_t i = random.below(random.below(64) == 0 ? 2000 : 10); i > 0; --i) {
                if (!flow.write_low()) {
                    ++refused;
                    break;
                }
                REQUIRE(!flow.in_spill);
                high += flow.at > local::kRingBytes * 3 / 4 ? 1 : 0;
                early += flow.at < before && before < local::kRingBytes / 2 ? 1 : 0;
                before = flow.at;
            }
            for (std::uint64_t i = random.below(random.below(4) == 0 ? 3000 : 10); i > 0; --i) {
                while (flow.loans.size() > 20 || (!flow.loans.empty() && random.below(64) == 0))
                    flow.give_back(random.below(flow.loans.size()));
                flow.keeps = keeps && flow.written > 30000 && random.below(8) == 0;
                if (!flow.read())
                    break;
                if (random.below(3) == 0)
                    flow.reader.publish();
            }
            flow.reader.publish();
        }
        flow.read_all();
        assert_int_equal(flow.got, flow.written);
        assert_true(refused > 20 && high > 1000 && early > 30);
        while (!flow.loans.empty())
            flow.give_back(0);
    }
}

// As much as fits is kept, the rest is refused, and then all goes on.
void full(void **)
{
    const Memory memory = make_memory();
    Flow flow(memory.get());
    std::size_t bytes = 0;
    for (std::size_t length = Flow::length_of(0); flow.write(true); length = Flow::length_of(flow.written))
        bytes += length;
    assert_true(bytes > local::kRingBytes + local::kSpillBytes * 3 / 4);
    assert_false(flow.write(true));
    flow.read_all();
    REQUIRE(flow.write(false));
    flow.read_all();
    assert_int_equal(flow.got, flow.written);
}

void two_threads(void **)
{
    constexpr std::uint64_t kCount = 50000;
    for (const bool low : {false, true}) {
        const Memory memory = make_memory();
        Flow flow(memory.get());
        std::thread writer([&flow, low] {
            while (flow.written < kCount)
                if (!(low ? flow.write_low() : flow.write(flow.written % 1000 < 500)))
                    std::this_thread::yield();
        });
        while (flow.got < kCount) {
            if (!flow.read())
                std::this_thread::yield();
            flow.reader.publish();
        }
        writer.join();
        assert_int_equal(flow.written, kCount);
    }
}

// One thread writes, one reads and lends, one gives back when it likes.
void three_threads(void **)
{
    constexpr std::uint64_t kCount = 50000;
    const Memory memory = make_memory();
    Flow flow(memory.get());
    flow.keeps = true;
    std::atomic<bool> done{false};
    std::mutex lock;
    std::thread writer([&flow] {
        while (flow.written < kCount)
            if (!flow.write(flow.written % 1000 < 500))
                std::this_thread::yield();
    });
    std::vector<Flow::Loan> out; // with the lock
    std::thread giver([&] {
        Random random;
        for (bool last = false; !last;) {
            last = done.load();
            std::vector<Flow::Loan> mine;
            {
                const std::lock_guard guard(lock);
                mine.swap(out);
            }
            std::size_t stay = last ? 0 : mine.size() / 8;
            while (mine.size() > stay) {
                const std::size_t place = random.below(mine.size());
                std::uint64_t number = 0;
                std::memcpy(&number, mine[place].payload, sizeof number);
                REQUIRE(number == mine[place].number);
                flow.reader.unkeep(mine[place].payload, mine[place].length);
                mine[place] = mine.back();
                mine.pop_back();
            }
            const std::lock_guard guard(lock);
            out.insert(out.end(), mine.begin(), mine.end());
        }
    });
    while (flow.got < kCount) {
        if (!flow.read())
            std::this_thread::yield();
        flow.reader.publish();
        const std::lock_guard guard(lock);
        out.insert(out.end(), flow.loans.begin(), flow.loans.end());
        flow.loans.clear();
    }
    writer.join();
    done.store(true);
    giver.join();
    assert_true(out.empty());
    assert_true(flow.reader.leave());
}

// Marks at every place: the reader comes back from each look, and stays inside.
void only_marks(void **)
{
    using namespace local;
    for (const std::uint64_t mark : {kRecordTurn, kRecordTurn | kRecordWrap, kRecordWrap}) {
        const Memory memory = make_memory();
        RingReader reader;
        reader.attach(memory.get());
        std::byte *const places = memory->data; // the spill is behind it
        for (std::size_t at = 0; at < kRingBytes + kSpillBytes; at += kRecordAlign)
            reinterpret_cast<Record *>(places + at)->word.store(kRecordValid | mark);
        Arrived arrived{};
        const auto none = (mark & kRecordWrap) != 0 ? RingReader::Peek::lie : RingReader::Peek::nothing;
        for (int i = 0; i < 1000; ++i)
            REQUIRE(reader.peek(arrived) == none);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(fast_and_slow),
        cmocka_unit_test(kept_records),
        cmocka_unit_test(keeps_half),
        cmocka_unit_test(keeps_all),
        cmocka_unit_test(comes_back),
        cmocka_unit_test(full),
        cmocka_unit_test(stays_low),
        cmocka_unit_test(low_and_slow),
        cmocka_unit_test(two_threads),
        cmocka_unit_test(only_marks),
        cmocka_unit_test(the_head_waits_a_little),
        cmocka_unit_test(the_last_one_ends_it),
        cmocka_unit_test(three_threads),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
