// SPDX-License-Identifier: BSD-2-Clause
// The ring of datagrams and its spill between a writer and a reader that is fast or slow at random: what was placed arrives
// once, whole and in order, whatever part it went through; and marks that make no sense lead nowhere.
#include "prov/vma/test/local_pair.hpp"

#include <memory>
#include <sys/mman.h>
#include <thread>

#include "local/ring.hpp"

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
    // The next one. False: no room.
    bool write(bool may_spill)
    {
        const std::size_t length = length_of(written);
        std::byte *place = writer.claim(length);
        if (place == nullptr)
            place = writer.claim_behind(length, may_spill);
        if (place == nullptr)
            return false;
        in_spill = place >= memory->spill;
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
        REQUIRE(number == got && arrived.length == length_of(got) && arrived.data == ~got);
        for (std::size_t i = sizeof number; i < arrived.length; ++i)
            REQUIRE(arrived.payload[i] == static_cast<std::byte>(got & 0xff));
        reader.consume(arrived);
        ++got;
        return true;
    }
    void read_all()
    {
        while (read()) {
        }
        reader.publish();
    }

    RingMemory *memory;
    RingWriter writer;
    RingReader reader;
    std::uint64_t written = 0, got = 0;
    bool in_spill = false;
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

// A receiver that caught up is served from the ring again, and each time that it is behind the spill begins at its start.
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
    const Memory memory = make_memory();
    Flow flow(memory.get());
    std::thread writer([&flow] {
        while (flow.written < kCount)
            if (!flow.write(flow.written % 1000 < 500))
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

// Marks at every place: the reader comes back from each look, and stays inside.
void only_marks(void **)
{
    using namespace local;
    for (const std::uint64_t mark : {kRecordTurn, kRecordTurn | kRecordWrap, kRecordWrap}) {
        const Memory memory = make_memory();
        RingReader reader;
        reader.attach(memory.get());
        for (std::size_t at = 0; at < kRingBytes + kSpillBytes; at += kRecordAlign)
            reinterpret_cast<Record *>(memory->data + at)->word.store(kRecordValid | mark);
        Arrived arrived{};
        const auto none = mark == kRecordWrap ? RingReader::Peek::lie : RingReader::Peek::nothing;
        for (int i = 0; i < 1000; ++i)
            REQUIRE(reader.peek(arrived) == none);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(fast_and_slow), cmocka_unit_test(comes_back), cmocka_unit_test(full),
        cmocka_unit_test(two_threads),   cmocka_unit_test(only_marks),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
