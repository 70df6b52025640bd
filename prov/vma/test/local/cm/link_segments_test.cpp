// SPDX-License-Identifier: BSD-2-Clause
// Segments that a link keeps: which a later connection takes, and when it must not.
#include "prov/vma/test/local/cm_pair.hpp"

#include <algorithm>
#include <fcntl.h>
#include <iterator>
#include <utility>
#include <vector>

#include "core/kernel.hpp"
#include "local/cm/link_segments.hpp"

using namespace vma;
using namespace vma::test;
using local::LinkSegments;
using local::OwnSegment;
using local::SegmentUse;

namespace {

constexpr std::size_t kSize = std::size_t{256} << 10;
constexpr std::size_t kCleared = 8192;

using Idle = std::shared_ptr<local::IdleSegments>;

// What both ends of a link keep: of one direction.
struct Kept {
    Idle idle;
    std::shared_ptr<LinkSegments> owner = std::make_shared<LinkSegments>(idle);
    std::shared_ptr<LinkSegments> peer = std::make_shared<LinkSegments>(idle);

    explicit Kept(Idle counted = std::make_shared<local::IdleSegments>()) : idle(std::move(counted)) {}

    std::unique_ptr<OwnSegment> open() const
    {
        auto made = std::make_unique<OwnSegment>();
        assert_int_equal(made->open(owner, kSize, kCleared), 0);
        return made;
    }
    // Its offer reaches the peer, which gets the descriptor where there is one.
    SegmentUse offer(OwnSegment &segment) const
    {
        std::uint64_t number = 0;
        assert_int_equal(segment.number_for(owner, number), 0);
        segment.offered();
        if (!segment.fd)
            return peer->find(number);
        return number != 0 ? peer->keep(number, core::duplicate_fd(segment.fd.get()))
                           : SegmentUse(core::duplicate_fd(segment.fd.get()));
    }
    // One connection's life but for the peer's word.
    void use(std::size_t bytes = 0) const
    {
        const std::unique_ptr<OwnSegment> one = open();
        SegmentUse theirs = offer(*one);
        assert_int_equal(theirs.map(kSize), 0);
        one->used_to(bytes);
    }
    // How many it says it has let go of.
    unsigned tell() const
    {
        unsigned told = 0;
        for (bool more = true; more;) {
            local::SegmentWords words;
            peer->tell(words);
            more = words.let_go[0] != 0;
            told += static_cast<unsigned>(std::count_if(std::begin(words.let_go), std::end(words.let_go),
                                                        [](std::uint64_t number) { return number != 0; }));
            owner->hear(words);
        }
        return told;
    }
    void drop() const
    {
        local::SegmentWords words;
        do {
            owner->tell(words);
            peer->hear(words);
        } while (words.dropped[0] != 0);
    }
};

bool is_new(const OwnSegment &segment)
{
    return static_cast<bool>(segment.fd);
}

void the_next_one_takes_it(void **)
{
    const Kept kept;
    std::unique_ptr<OwnSegment> first = kept.open();
    SegmentUse theirs = kept.offer(*first);
    assert_true(is_new(*first));
    assert_int_equal(theirs.map(kSize), 0);
    std::memset(theirs.data(), 'x', kSize);
    const std::byte *const memory = first->mapping.data();
    first.reset();
    assert_true(is_new(*kept.open())); // as the peer may write to it yet
    theirs = SegmentUse();
    assert_int_equal(kept.tell(), 1);
    const std::unique_ptr<OwnSegment> second = kept.open();
    assert_false(is_new(*second));
    assert_ptr_equal(second->mapping.data(), memory);
    for (std::size_t i = 0; i < kCleared; ++i)
        assert_true(memory[i] == std::byte{0});
    theirs = kept.offer(*second);
    assert_int_equal(theirs.map(kSize), 0);
    theirs.data()[kCleared] = std::byte{'y'};
    assert_true(memory[kCleared] == std::byte{'y'});
    assert_true(is_new(*kept.open())); // it is in use
}

void another_size_is_another_segment(void **)
{
    const Kept kept;
    kept.use();
    assert_int_equal(kept.tell(), 1);
    OwnSegment other;
    assert_int_equal(other.open(kept.owner, kSize * 2, kCleared), 0);
    assert_true(is_new(other));
    std::unique_ptr<OwnSegment> fits = kept.open();
    assert_false(is_new(*fits));
    assert_int_equal(kept.offer(*fits).map(kSize * 2), -FI_EINVAL);
}

// A request that is refused and sent again is two offers, and the peer has two uses of the segment.
void each_offer_has_its_word(void **)
{
    const Kept kept;
    std::unique_ptr<OwnSegment> one = kept.open();
    SegmentUse theirs = kept.offer(*one);
    assert_int_equal(theirs.map(kSize), 0);
    one->fd.reset(); // the peer has it
    SegmentUse again = kept.offer(*one);
    assert_int_equal(again.map(kSize), 0);
    one.reset();
    theirs = SegmentUse();
    assert_int_equal(kept.tell(), 1);
    assert_true(is_new(*kept.open()));
    again = SegmentUse();
    assert_int_equal(kept.tell(), 1);
    assert_false(is_new(*kept.open()));
}

// One that was not mapped would cost the peer a descriptor.
void what_was_not_mapped_is_not_kept(void **)
{
    const Kept kept;
    std::unique_ptr<OwnSegment> one = kept.open();
    std::uint64_t number = 0;
    assert_int_equal(one->number_for(kept.owner, number), 0);
    assert_true(number != 0);
    one->offered();
    core::UniqueFd copy = core::duplicate_fd(one->fd.get());
    const int descriptor = copy.get();
    SegmentUse theirs = kept.peer->keep(number, std::move(copy));
    assert_true(core::kernel::fcntl(descriptor, F_GETFD) >= 0);
    theirs = SegmentUse();
    assert_true(core::kernel::fcntl(descriptor, F_GETFD) < 0);
    assert_int_equal(kept.tell(), 0);
    assert_false(static_cast<bool>(kept.peer->find(number)));
    one.reset();
    assert_true(is_new(*kept.open()));
}

// Idle ones have a limit, of a link and of all links of a fabric. The peer drops what the owner does.
void so_many_are_kept(void **)
{
    const Idle idle = std::make_shared<local::IdleSegments>();
    std::vector<Kept> links;
    for (int link = 0; link < 6; ++link) {
        const Kept &kept = links.emplace_back(idle);
        std::vector<std::unique_ptr<OwnSegment>> many;
        std::vector<SegmentUse> theirs;
        for (std::size_t i = 0; i < local::kKeptSegments + 3; ++i) {
            many.push_back(kept.open());
            theirs.push_back(kept.offer(*many.back()));
            assert_int_equal(theirs.back().map(kSize), 0);
        }
        theirs.clear();
        assert_int_equal(kept.tell(), local::kKeptSegments);
        many.clear();
        kept.drop();
        assert_int_equal(idle->own, std::min<std::size_t>(64, (links.size()) * local::kIdleSegments));
        assert_int_equal(idle->peers, idle->own);
    }
    links.pop_back();
    links.erase(links.begin());
    assert_int_equal(idle->own, 48);
    links.clear();
    assert_int_equal(idle->own, 0);
    assert_int_equal(idle->peers, 0);
}

bool has(const std::byte *memory, std::size_t length, std::byte value)
{
    return std::all_of(memory, memory + length, [value](std::byte one) { return one == value; });
}

// What the peer has not let go of it may read on: from the memory that comes again by the kernel it sends, and a word
// says what its last slot has become.
void what_the_peer_has_stays_as_it_is(void **)
{
    for (const bool lost : {false, true}) {
        const Kept kept;
        std::vector<SegmentUse> theirs;
        for (std::size_t i = 0; i < local::kIdleSegments + 4; ++i) {
            const std::unique_ptr<OwnSegment> one = kept.open();
            assert_true(is_new(*one));
            theirs.push_back(kept.offer(*one));
            assert_int_equal(theirs.back().map(kSize), 0);
            std::memset(one->mapping.data(), 'r', kSize);
            if (lost)
                kept.owner->forget();
            one->used_to(kSize);
        }
        for (const SegmentUse &use : theirs)
            assert_true(has(use.data(), kSize, std::byte{'r'}));
    }
}

// Behind the peer's word, whichever of both ends is last.
void what_lies_far_behind_goes_back(void **)
{
    for (const bool peer_is_last : {false, true}) {
        const Kept kept;
        std::unique_ptr<OwnSegment> one = kept.open();
        SegmentUse theirs = kept.offer(*one);
        assert_int_equal(theirs.map(kSize), 0);
        std::memset(theirs.data(), 'r', kSize);
        one->used_to(kSize);
        if (peer_is_last)
            one.reset();
        theirs = SegmentUse();
        assert_int_equal(kept.tell(), 1);
        one.reset();
        one = kept.open();
        assert_false(is_new(*one));
        const std::byte *const memory = one->mapping.data();
        assert_true(has(memory + kCleared, local::kKeptBytes - kCleared, std::byte{'r'}));
        assert_true(has(memory + local::kKeptBytes, kSize - local::kKeptBytes, std::byte{0}));
    }
}

// An acceptance that fails before it is sent.
void what_was_not_offered_is_not_kept(void **)
{
    const Kept kept;
    std::unique_ptr<OwnSegment> one = kept.open();
    std::uint64_t number = 0;
    assert_int_equal(one->number_for(kept.owner, number), 0);
    assert_true(number != 0);
    one.reset();
    assert_true(is_new(*kept.open()));
    kept.use();
    assert_int_equal(kept.tell(), 1);
    one = kept.open(); // one that the peer has may be kept again
    assert_false(is_new(*one));
    one.reset();
    assert_false(is_new(*kept.open()));
}

// Who has it from another link would not be heard of.
void what_somebody_else_has_is_not_kept(void **)
{
    const Kept kept;
    const Kept other;
    std::unique_ptr<OwnSegment> one = kept.open();
    std::uint64_t number = 1;
    assert_int_equal(one->number_for(nullptr, number), 0);
    assert_int_equal(number, 0);
    one->offered();
    assert_int_equal(one->number_for(kept.owner, number), 0);
    assert_int_equal(number, 0);
    one = kept.open();
    SegmentUse theirs = kept.offer(*one);
    assert_int_equal(theirs.map(kSize), 0);
    assert_int_equal(one->number_for(other.owner, number), 0);
    assert_int_equal(number, 0);
}

// Objects of a connection that outlive the link.
void a_link_that_has_ended_keeps_nothing(void **)
{
    const Kept kept;
    kept.use();
    assert_int_equal(kept.tell(), 1);
    std::unique_ptr<OwnSegment> one = kept.open();
    SegmentUse theirs = kept.offer(*one);
    assert_int_equal(theirs.map(kSize), 0);
    kept.use();
    kept.owner->close();
    kept.peer->close();
    theirs.data()[0] = std::byte{'x'};
    one.reset();
    theirs = SegmentUse();
    assert_int_equal(kept.tell(), 0);
    assert_true(is_new(*kept.open()));
    assert_int_equal(kept.idle->own + kept.idle->peers, 0);
}

void one_that_is_never_let_go_of_makes_room(void **)
{
    const Kept kept;
    std::vector<SegmentUse> never;
    for (std::size_t i = 0; i < local::kIdleSegments; ++i) {
        const std::unique_ptr<OwnSegment> one = kept.open();
        never.push_back(kept.offer(*one));
        assert_int_equal(never.back().map(kSize), 0);
    }
    kept.use();
    assert_int_equal(kept.tell(), 1);
    assert_false(is_new(*kept.open()));
}

void what_was_lost_is_not_taken(void **)
{
    const Kept kept;
    kept.use();
    assert_int_equal(kept.tell(), 1);
    std::unique_ptr<OwnSegment> used = kept.open();
    assert_false(is_new(*used));
    SegmentUse theirs = kept.offer(*used);
    assert_int_equal(theirs.map(kSize), 0);
    kept.owner->forget();
    used.reset();
    theirs = SegmentUse();
    kept.tell();
    assert_true(is_new(*kept.open()));
}

// Words are the peer's.
void words_that_mean_nothing(void **)
{
    const Kept kept;
    kept.use();
    for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{63}, UINT64_MAX})
        kept.owner->hear({.let_go = {number}, .dropped = {number}});
    assert_true(is_new(*kept.open()));
    assert_int_equal(kept.tell(), 1);
    assert_false(is_new(*kept.open()));
    for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1}, UINT64_MAX})
        assert_int_equal(kept.peer->find(number).map(kSize), -FI_EINVAL);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_next_one_takes_it),
        cmocka_unit_test(another_size_is_another_segment),
        cmocka_unit_test(each_offer_has_its_word),
        cmocka_unit_test(what_was_not_mapped_is_not_kept),
        cmocka_unit_test(so_many_are_kept),
        cmocka_unit_test(what_the_peer_has_stays_as_it_is),
        cmocka_unit_test(what_lies_far_behind_goes_back),
        cmocka_unit_test(what_was_not_offered_is_not_kept),
        cmocka_unit_test(what_somebody_else_has_is_not_kept),
        cmocka_unit_test(a_link_that_has_ended_keeps_nothing),
        cmocka_unit_test(one_that_is_never_let_go_of_makes_room),
        cmocka_unit_test(what_was_lost_is_not_taken),
        cmocka_unit_test(words_that_mean_nothing),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
