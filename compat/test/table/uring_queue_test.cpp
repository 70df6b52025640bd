// SPDX-License-Identifier: BSD-2-Clause
// The submission queue of an io_uring, in memory that may hold anything: what lies behind it ends the test.
#include "fabtests/unit.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "compat/src/table/uring_queue.hpp"
#include "fabtests/seed.hpp"

using namespace vma::sock;

namespace {

constexpr std::uint32_t kEntries = 8;
constexpr UringHead kNop = {0, 0, 0, 5};
constexpr UringHead kControl = {29, 0, 0, 5};

// Memory that ends at a page that is not there.
class Guarded
{
public:
    explicit Guarded(std::size_t size)
    {
        const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        whole_ = 2 * page;
        start_ =
            static_cast<char *>(::mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        assert_true(start_ != MAP_FAILED);
        assert_int_equal(::mprotect(start_ + page, page, PROT_NONE), 0);
        at = start_ + page - size;
    }
    ~Guarded() { ::munmap(start_, whole_); }
    Guarded(const Guarded &) = delete;
    Guarded &operator=(const Guarded &) = delete;

    char *at;

private:
    char *start_;
    std::size_t whole_;
};

struct Fixture {
    explicit Fixture(bool has_array = true) : words((2 + (has_array ? kEntries : 0)) * sizeof(std::uint32_t))
    {
        layout = {words.at,
                  entries.at,
                  (2 + (has_array ? kEntries : 0)) * sizeof(std::uint32_t),
                  0,
                  sizeof(std::uint32_t),
                  has_array ? 2 * 4U : 0,
                  kEntries,
                  sizeof(io_uring_sqe)};
        assert_true(UringQueue::is_sane(layout));
        for (std::uint32_t i = 0; has_array && i < kEntries; ++i)
            word(2 + i) = i;
        queue.begin(layout, changes.data());
    }
    std::uint32_t &word(std::size_t index) const { return reinterpret_cast<std::uint32_t *>(words.at)[index]; }
    std::uint32_t &head() const { return word(0); }
    std::uint32_t &tail() const { return word(1); }
    io_uring_sqe &entry(std::uint32_t index) const { return reinterpret_cast<io_uring_sqe *>(entries.at)[index]; }
    void write(std::uint32_t index, const UringHead &head) const
    {
        memcpy(static_cast<void *>(&entry(index)), &head, sizeof head);
    }

    Guarded words;
    Guarded entries{kEntries * sizeof(io_uring_sqe)};
    std::vector<UringQueue::Change> changes{kEntries};
    UringQueue::Layout layout = {};
    UringQueue queue;
};

void claims_what_is_there(void **)
{
    const Fixture f;
    UringQueue queue = f.queue;
    std::uint32_t first = 0;
    f.tail() = 5;
    assert_int_equal(queue.claim(3, first), 3);
    assert_int_equal(first, 0);
    assert_int_equal(queue.claim(100, first), 2); // another thread
    assert_int_equal(first, 3);
    assert_int_equal(queue.claim(1, first), 0);
    f.head() = 3; // the kernel took three, and the second call came to nothing
    queue.end(2);
    assert_int_equal(queue.claim(9, first), 2);
    assert_int_equal(first, 3);
    queue.give_back(1);
    assert_int_equal(queue.claim(9, first), 1);
    assert_int_equal(first, 4);
    assert_false(queue.was_passed_by());
}

// Before, during or behind the kernel's part: whoever calls next has all that it has not taken.
void a_call_that_is_left(void **)
{
    for (const std::uint32_t taken : {0U, 2U, 3U}) {
        const Fixture f;
        UringQueue queue = f.queue;
        std::uint32_t first = 0;
        f.tail() = 5;
        assert_int_equal(queue.claim(3, first), 3);
        f.head() = taken;
        queue.leave();
        assert_false(queue.is_lost());
        assert_int_equal(queue.claim(9, first), 5 - taken);
        assert_int_equal(first, taken);
        assert_false(queue.was_passed_by());
    }
}

// As long as the other one goes on nobody knows whose the rest is.
void a_call_that_is_left_beside_another(void **)
{
    const Fixture f;
    UringQueue queue = f.queue;
    std::uint32_t first = 0;
    f.tail() = 6;
    assert_int_equal(queue.claim(2, first), 2);
    assert_int_equal(queue.claim(3, first), 3);
    f.head() = 2; // of the first or the second
    queue.leave();
    assert_true(queue.is_lost());
    f.head() = 4;
    queue.end(1);
    assert_false(queue.is_lost());
    assert_int_equal(queue.claim(9, first), 2);
    assert_int_equal(first, 4);
}

void a_call_that_is_left_when_all_are_taken(void **)
{
    const Fixture f;
    UringQueue queue = f.queue;
    std::uint32_t first = 0;
    f.tail() = 6;
    assert_int_equal(queue.claim(2, first), 2);
    assert_int_equal(queue.claim(3, first), 3);
    f.head() = 5; // and both wait
    queue.leave();
    assert_false(queue.is_lost());
    assert_int_equal(queue.claim(9, first), 1);
    assert_int_equal(first, 5);
    queue.leave();
    assert_true(queue.is_lost());
    f.head() = 6; // the one that waits took it
    assert_false(queue.is_lost());
}

void sees_that_it_was_passed_by(void **)
{
    const Fixture f;
    UringQueue queue = f.queue;
    std::uint32_t first = 0;
    f.tail() = 2;
    f.head() = 1;
    assert_true(queue.was_passed_by());
    assert_int_equal(queue.claim(9, first), 1);
    assert_int_equal(first, 1);
    assert_false(queue.was_passed_by());
}

void counters_begin_anew(void **)
{
    const Fixture f(false);
    f.head() = f.tail() = ~0U - 1;
    UringQueue queue;
    std::vector<UringQueue::Change> changes(kEntries);
    queue.begin(f.layout, changes.data());
    std::uint32_t first = 0;
    f.tail() = 3;
    assert_int_equal(queue.claim(9, first), 5);
    f.head() = 3;
    assert_false(queue.was_passed_by());
}

void changes_and_restores(void **)
{
    Fixture f;
    f.write(0, kControl);
    f.entry(0).user_data = 77;
    f.tail() = 1;
    std::uint32_t first = 0;
    assert_int_equal(f.queue.claim(1, first), 1);
    io_uring_sqe read = {};
    assert_true(f.queue.read(first, read));
    assert_int_equal(read.opcode, kControl.operation);
    assert_true(f.queue.change(first, kControl, kNop));
    assert_int_equal(f.entry(0).opcode, kNop.operation);
    assert_int_equal(f.entry(0).user_data, 77);
    assert_true(f.queue.changed(first) == UringQueue::Changed::kHere);
    f.queue.restore(); // not taken yet
    assert_int_equal(f.entry(0).opcode, kNop.operation);
    f.head() = 1;
    f.queue.restore();
    assert_int_equal(f.entry(0).opcode, kControl.operation);
    assert_true(f.queue.changed(first) == UringQueue::Changed::kNo);
}

void leaves_what_the_program_has_written_since(void **)
{
    Fixture f;
    f.write(0, kControl);
    f.tail() = 1;
    assert_true(f.queue.change(0, kControl, kNop));
    const UringHead next = {22, 0, 0, 9};
    f.write(0, next);
    f.head() = 1;
    f.queue.restore();
    assert_int_equal(f.entry(0).opcode, next.operation);
    assert_false(f.queue.change(1, kControl, kNop)); // it is another one than was read
}

void one_entry_twice(void **)
{
    Fixture f;
    f.write(4, kControl);
    f.word(2) = f.word(3) = 4;
    f.tail() = 2;
    assert_true(f.queue.change(0, kControl, kNop));
    assert_true(f.queue.changed(1) == UringQueue::Changed::kElsewhere);
    assert_false(f.queue.change(1, kNop, kControl));
    f.head() = 1;
    f.queue.restore();
    assert_true(f.queue.changed(1) == UringQueue::Changed::kNo);
    assert_true(f.queue.change(1, kControl, kNop));
}

void refuses_layouts_that_do_not_fit(void **)
{
    const Fixture f;
    const auto sane_with = [&f](auto spoil) {
        UringQueue::Layout layout = f.layout;
        spoil(layout);
        return UringQueue::is_sane(layout);
    };
    assert_false(sane_with([](auto &l) { l.count = 0; }));
    assert_false(sane_with([](auto &l) { l.count = 6; }));
    assert_false(sane_with([](auto &l) { l.count = 1U << 31; }));
    assert_false(sane_with([](auto &l) { l.count = 2 * kEntries; }));
    assert_false(sane_with([](auto &l) { l.head = static_cast<std::uint32_t>(l.words_size); }));
    assert_false(sane_with([](auto &l) { l.tail = ~0U; }));
    assert_false(sane_with([](auto &l) { l.tail = 2; }));
    assert_false(sane_with([](auto &l) { l.array = ~3U; }));
    assert_false(sane_with([](auto &l) { l.stride = 8; }));
}

// Nothing outside its memory is touched, and no more is claimed than there are entries, whatever stands in it.
void any_words(void **)
{
    std::mt19937_64 random(vma::test::seed());
    for (int round = 0; round < 200; ++round) {
        Fixture f(round % 2 == 0);
        for (int i = 0; i < 100; ++i) {
            for (std::size_t at = 0; at < f.layout.words_size / sizeof(std::uint32_t); ++at)
                if (random() % 4 == 0)
                    f.word(at) = static_cast<std::uint32_t>(random() % 3 == 0 ? random() : random() % (2 * kEntries));
            std::uint32_t first = 0;
            const std::uint32_t count = f.queue.claim(static_cast<std::uint32_t>(random() % 20), first);
            assert_true(count <= kEntries);
            for (std::uint32_t j = 0; j < count; ++j) {
                io_uring_sqe read = {};
                UringHead from = {};
                if (!f.queue.read(first + j, read))
                    continue;
                memcpy(&from, static_cast<const void *>(&read), sizeof from);
                const auto before = f.queue.changed(first + j);
                const UringHead to = {static_cast<std::uint8_t>(random()), 0, 0, static_cast<std::int32_t>(random())};
                const bool changed = f.queue.change(first + j, from, to);
                assert_true(!changed || before == UringQueue::Changed::kNo);
            }
            if (random() % 3 == 0)
                f.queue.leave();
            else if (random() % 2 == 0)
                f.queue.end(static_cast<std::uint32_t>(random() % (count + 1)));
            f.queue.restore();
        }
    }
}

} // namespace

int main()
{
    static const CMUnitTest tests[] = {
        cmocka_unit_test(claims_what_is_there),
        cmocka_unit_test(a_call_that_is_left),
        cmocka_unit_test(a_call_that_is_left_beside_another),
        cmocka_unit_test(a_call_that_is_left_when_all_are_taken),
        cmocka_unit_test(sees_that_it_was_passed_by),
        cmocka_unit_test(counters_begin_anew),
        cmocka_unit_test(changes_and_restores),
        cmocka_unit_test(leaves_what_the_program_has_written_since),
        cmocka_unit_test(one_entry_twice),
        cmocka_unit_test(refuses_layouts_that_do_not_fit),
        cmocka_unit_test(any_words),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
