// SPDX-License-Identifier: BSD-2-Clause
// The capture's ring between the threads of a process and a listener: what is written is read, in order and whole; what
// has no room is counted; a listener that ends, and one who writes anything there, does no harm.
#include "fabtests/unit.hpp"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "compat/src/libc/real.hpp"
#include "compat/src/stats/count.hpp"
#include "compat/src/stats/region.hpp"
#include "compat/src/stats/region_state.hpp"
#include "util/vma_dump/listener.hpp"

using namespace vma;
using namespace vma_dump;
using stats::CaptureRecord;
using stats::CaptureWords;

namespace {

constexpr std::uint32_t kRing = stats::kLeastCapture;
constexpr std::uint32_t kCell = stats::kCaptureCell;
constexpr unsigned kThreads = 4;
std::uint32_t g_number = 0;

CaptureWords ask(std::uint32_t ring, std::uint32_t most)
{
    CaptureWords words = {};
    words.number = ++g_number;
    words.ring_size = ring;
    words.most = most;
    stats::answer_capture(words);
    assert_int_equal(words.answered, g_number);
    return words;
}

// A listener in this process, with a mapping of its own.
void listen(RingReader &reader, std::uint32_t most = stats::kMostPayload)
{
    const CaptureWords words = ask(kRing, most);
    std::string error;
    assert_int_equal(words.error, 0);
    if (reader.open(::getpid(), words.fd, error) != Opened::kYes)
        UNIT_FAIL(error.c_str());
    assert_true(stats::is_captured());
}

void hang_up(RingReader &reader)
{
    reader.close();
    stats::look_after_capture();
    assert_false(stats::is_captured());
    assert_false(stats::g_capture.open.load());
}

std::unique_ptr<stats::Slot> make_slot(std::uint8_t protocol)
{
    auto slot = std::make_unique<stats::Slot>();
    slot->facts.protocol = protocol;
    slot->facts.fd = 7;
    return slot;
}

void send(stats::Slot &slot, const std::vector<std::uint8_t> &bytes)
{
    stats::sent(slot, bytes.size(),
                [&](const stats::Slot &record) { stats::capture_sent(record, bytes.data(), bytes.size()); });
}

std::vector<std::uint8_t> pattern(std::size_t length, unsigned seed)
{
    std::vector<std::uint8_t> bytes(length);
    for (std::size_t i = 0; i < length; ++i)
        bytes[i] = static_cast<std::uint8_t>(i * 7 + seed);
    return bytes;
}

void test_one(void **)
{
    RingReader reader;
    listen(reader);
    const auto slot = make_slot(IPPROTO_TCP);
    const auto message = std::make_unique<Message>();
    send(*slot, pattern(100, 1));
    send(*slot, pattern(150000, 2)); // more than a packet
    std::uint64_t before = 0;
    for (const std::uint32_t length :
         {100U, stats::kMostPayload, stats::kMostPayload, 150000 - 2 * stats::kMostPayload}) {
        const CaptureRecord *const head = reader.front();
        assert_non_null(head);
        assert_true(reader.read(*message));
        assert_int_equal(head->length, length);
        assert_int_equal(head->copied, length);
        assert_int_equal(head->before, before);
        assert_int_equal(head->flags, stats::kCaptureOut);
        assert_int_equal(head->fd, 7);
        const Frame frame = message->frame(262144);
        const auto whole = before < 100 ? pattern(100, 1) : pattern(150000, 2);
        const std::size_t from = before < 100 ? 0 : static_cast<std::size_t>(before) - 100;
        assert_memory_equal(frame.bytes + frame.captured - length, whole.data() + from, length);
        before += length;
        reader.pop();
    }
    assert_null(reader.front());
    hang_up(reader);
}

void test_nothing_is_written_without_a_listener(void **)
{
    const auto slot = make_slot(IPPROTO_TCP);
    unsigned shown = 0;
    for (int i = 0; i < 1000; ++i)
        stats::sent(*slot, 1, [&](const stats::Slot &) { ++shown; });
    assert_int_equal(shown, 0);
    assert_int_equal(slot->now.tx.packets, 1000);
}

void test_snap(void **)
{
    RingReader reader;
    listen(reader, 10);
    const auto slot = make_slot(IPPROTO_UDP);
    send(*slot, pattern(100, 1));
    send(*slot, {}); // a datagram may have no bytes
    assert_int_equal(reader.front()->length, 100);
    assert_int_equal(reader.front()->copied, 10);
    reader.pop();
    assert_int_equal(reader.front()->length, 0);
    reader.pop();
    hang_up(reader);
}

// Nobody fetches: what is there stays, what comes is counted, and once there is room all goes on.
void test_full(void **)
{
    RingReader reader;
    listen(reader);
    const auto slot = make_slot(IPPROTO_TCP);
    const auto message = std::make_unique<Message>();
    constexpr unsigned kMessages = 4000;
    for (unsigned i = 0; i < kMessages; ++i)
        send(*slot, pattern(1000, i));
    unsigned count = 0;
    for (; reader.front() != nullptr; ++count, reader.pop()) {
        assert_true(reader.read(*message));
        assert_int_equal(message->head().before, std::uint64_t{count} * 1000);
    }
    assert_int_equal(count, kRing / stats::capture_record_size(1000));
    assert_int_equal(count + reader.dropped(), kMessages);
    reader.tell();
    send(*slot, pattern(1000, 0));
    assert_non_null(reader.front());
    assert_int_equal(reader.front()->before, std::uint64_t{kMessages} * 1000);
    hang_up(reader);
}

// The reader uses the writers' own mapping: ThreadSanitizer sees which of them waits for which.
void test_threads(void **)
{
    constexpr unsigned kMessages = 20000;
    const CaptureWords words = ask(kRing, stats::kMostPayload);
    assert_int_equal(words.error, 0);
    RingReader reader;
    reader.read_from(*stats::g_capture.mapped, kRing);
    std::vector<std::unique_ptr<stats::Slot>> slots;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
        slots.push_back(make_slot(IPPROTO_TCP));
        slots.back()->facts.fd = static_cast<int>(t);
    }
    for (unsigned t = 0; t < kThreads; ++t)
        threads.emplace_back([&slot = *slots[t], t] {
            for (unsigned i = 0; i < kMessages; ++i)
                send(slot, pattern(i % 200 + 1, t + i));
        });
    const auto message = std::make_unique<Message>();
    std::uint64_t next[kThreads] = {};
    std::uint64_t count = 0;
    while (count + reader.dropped() < std::uint64_t{kThreads} * kMessages || reader.front() != nullptr) {
        if (reader.front() == nullptr) {
            reader.tell();
            std::this_thread::yield();
            continue;
        }
        assert_true(reader.read(*message));
        const CaptureRecord &head = message->head();
        const auto t = static_cast<unsigned>(head.fd);
        assert_true(t < kThreads && head.before >= next[t]);
        next[t] = head.before + head.length;
        const Frame frame = message->frame(262144);
        const std::uint8_t *const bytes = frame.bytes + frame.captured - head.length;
        for (unsigned i = 1; i < head.length; ++i)
            assert_int_equal(bytes[i], static_cast<std::uint8_t>(bytes[0] + 7 * i));
        reader.pop();
        ++count;
    }
    for (std::thread &thread : threads)
        thread.join();
    assert_true(count > 0);
    stats::g_capture.mapped->heard = 1; // nobody has the lock
    hang_up(reader);
}

void test_listener_ends_while_it_is_written(void **)
{
    for (int round = 0; round < 20; ++round) {
        RingReader reader;
        listen(reader);
        const auto slot = make_slot(IPPROTO_TCP);
        std::atomic<bool> stop{false};
        std::thread writer([&] {
            while (!stop.load(std::memory_order_relaxed))
                send(*slot, pattern(64, 0));
        });
        while (reader.front() == nullptr)
            std::this_thread::yield();
        reader.close();
        while (stats::g_capture.open.load(std::memory_order_relaxed))
            stats::look_after_capture();
        stop.store(true, std::memory_order_relaxed);
        writer.join();
        assert_false(stats::is_captured());
    }
}

void test_second_listener_is_refused(void **)
{
    RingReader reader;
    listen(reader);
    assert_int_equal(ask(kRing, 100).error, EBUSY);
    RingReader second;
    std::string error;
    assert_true(second.open(::getpid(), stats::g_capture.fd, error) == Opened::kRefused);
    assert_string_equal(error.c_str(), "another vma_dump listens to it");
    hang_up(reader);
    listen(second); // and then there is a new one
    hang_up(second);
}

// A process's file of counters as far as vma_dump needs it: this process's.
class CountersFile
{
public:
    CountersFile() : fd_(::mkstemp(path_))
    {
        assert_true(fd_ >= 0);
        const auto header = std::make_unique<stats::Header>();
        stats::write_sizes(*header, 0);
        header->magic = stats::kMagic;
        header->pid = static_cast<std::uint32_t>(::getpid());
        header->state = stats::State::kRunning;
        header->made_boot_ns = stats::read_clock(CLOCK_BOOTTIME);
        header->made_ns = stats::read_clock(CLOCK_REALTIME);
        assert_int_equal(::pwrite(fd_, header.get(), sizeof *header, 0), sizeof *header);
        assert_int_equal(::pwrite(fd_, &g_number, sizeof g_number, kAt + offsetof(CaptureWords, number)),
                         sizeof g_number);
    }
    CountersFile(const CountersFile &) = delete;
    CountersFile &operator=(const CountersFile &) = delete;
    ~CountersFile()
    {
        ::unlink(path_);
        ::close(fd_);
    }

    std::unique_ptr<Listener> make_listener() const
    {
        vma_stats::Snapshot snapshot = {};
        std::string error;
        assert_true(vma_stats::read_snapshot(path_, snapshot, error));
        return std::make_unique<Listener>(vma_stats::Found{::getpid(), path_}, snapshot);
    }

    int descriptor() const { return fd_; }

    // What the process does when it has been asked.
    void answer() const { answer_with(0); }
    void refuse() const { answer_with(EBUSY); }

private:
    static constexpr off_t kAt = offsetof(stats::Header, capture);

    void answer_with(std::uint32_t error) const
    {
        CaptureWords words = {};
        assert_int_equal(::pread(fd_, &words, sizeof words, kAt), sizeof words);
        stats::answer_capture(words);
        assert_int_equal(::pwrite(fd_, &words, sizeof words, kAt), sizeof words);
        assert_int_equal(words.answered, words.number);
        assert_int_equal(words.error, error);
        g_number = words.number;
    }

    char path_[32] = "/tmp/capture_test.XXXXXX";
    int fd_;
};

// Nobody has come in time.
void give_up_ring()
{
    stats::g_capture.deadline_ns = 0;
    stats::look_after_capture();
    assert_false(stats::g_capture.open.load());
}

// Nothing has the ring's number then, or another file.
void test_late_listener(void **)
{
    for (const bool taken : {false, true}) {
        const CountersFile file;
        const auto listener = file.make_listener();
        assert_true(listener->ask(kRing, 100));
        file.answer();
        const int number = stats::g_capture.fd;
        give_up_ring();
        if (taken)
            assert_int_equal(::dup2(file.descriptor(), number), number);
        listener->look();
        if (taken)
            ::close(number);
        assert_int_equal(listener->stage(), Stage::kAsked);
        file.answer();
        listener->look();
        assert_int_equal(listener->stage(), Stage::kListening);
        hang_up(listener->ring());
    }
}

void test_listener_who_is_always_late(void **)
{
    const CountersFile file;
    const auto listener = file.make_listener();
    assert_true(listener->ask(kRing, 100));
    int asked = 0;
    for (; listener->stage() == Stage::kAsked; ++asked) {
        file.answer();
        give_up_ring();
        listener->look();
    }
    assert_int_equal(asked, 11);
}

// The second one's wish is written over the first one's, or answered before the first one has come.
void test_two_ask(void **)
{
    for (const bool answered : {false, true}) {
        const CountersFile file;
        const auto first = file.make_listener();
        const auto second = file.make_listener();
        assert_true(first->ask(kRing, 100));
        if (answered)
            file.answer();
        assert_true(second->ask(kRing, 100));
        file.answer();
        first->look(); // asks again
        second->look();
        assert_int_equal(first->stage(), Stage::kAsked);
        assert_int_equal(second->stage(), Stage::kListening);
        file.refuse();
        first->look();
        assert_int_equal(first->stage(), Stage::kOver);
        hang_up(second->ring());
    }
}

void test_wrong_wishes(void **)
{
    assert_int_equal(ask(kRing + 4096, 100).error, EINVAL);
    assert_int_equal(ask(kRing / 2, 100).error, EINVAL);
    assert_int_equal(ask(stats::kMostCapture * 2, 100).error, EINVAL);
    assert_int_equal(ask(kRing, stats::kMostPayload + 1).error, EINVAL);
    assert_false(stats::is_captured());
}

// Whatever a listener writes into the ring, the process writes within it, and nobody waits.
void test_hostile_listener(void **)
{
    RingReader reader;
    listen(reader);
    const auto slot = make_slot(IPPROTO_TCP);
    auto &header = *stats::g_capture.mapped;
    for (const std::uint64_t taken : {UINT64_MAX, std::uint64_t{1} << 63, std::uint64_t{12345}, std::uint64_t{0}}) {
        __atomic_store_n(&header.taken, taken, __ATOMIC_RELAXED);
        for (int i = 0; i < 5000; ++i)
            send(*slot, pattern(1000, 0));
    }
    memset(reinterpret_cast<std::uint8_t *>(&header) + 64, 0xff, stats::kCaptureStart - 64 + kRing);
    for (int i = 0; i < 5000; ++i)
        send(*slot, pattern(1000, 0));
    hang_up(reader);
}

// A process may write anything, too: it is found before it is followed.
void test_hostile_process(void **)
{
    RingReader reader;
    listen(reader);
    const auto message = std::make_unique<Message>();
    auto *const record = reinterpret_cast<CaptureRecord *>(reinterpret_cast<std::uint8_t *>(stats::g_capture.mapped) +
                                                           stats::kCaptureStart);
    record->length = record->copied = 1 << 30;
    record->size = 1U << 31;
    assert_non_null(reader.front());
    assert_false(reader.read(*message));
    hang_up(reader);
    CaptureRecord head = {};
    head.length = 100;
    head.copied = 100;
    head.size = stats::capture_record_size(100);
    assert_true(is_sound(head));
    head.size -= kCell;
    assert_false(is_sound(head));
    head.size += kCell + 1;
    assert_false(is_sound(head));
    head.size = stats::capture_record_size(100);
    head.copied = 101;
    assert_false(is_sound(head));
}

int prepare(void **)
{
    libc::resolve_real();
    return 0;
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_nothing_is_written_without_a_listener),
        cmocka_unit_test(test_snap),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_listener_ends_while_it_is_written),
        cmocka_unit_test(test_second_listener_is_refused),
        cmocka_unit_test(test_late_listener),
        cmocka_unit_test(test_listener_who_is_always_late),
        cmocka_unit_test(test_two_ask),
        cmocka_unit_test(test_wrong_wishes),
        cmocka_unit_test(test_hostile_listener),
        cmocka_unit_test(test_hostile_process),
    };
    return cmocka_run_group_tests(tests, prepare, nullptr);
}
