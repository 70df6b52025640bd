// SPDX-License-Identifier: BSD-2-Clause
// Segments that a link keeps: which a later connection takes, and when it must not.
#include "prov/vma/test/local/cm_pair.hpp"
#include "prov/vma/test/local/raw_link.hpp"

#include <algorithm>
#include <fcntl.h>
#include <iterator>
#include <utility>
#include <vector>

#include "core/kernel.hpp"
#include "local/cm/link_segments.hpp"
#include "local/layout.hpp"
#include "local/msg/endpoint.hpp"
#include "rdma/fi_ext_vma.h"

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

fid_ep *with_region(Net &net, fi_info *info)
{
    const std::size_t bytes = 65536;
    fid_ep *const ep = net.endpoint(info);
    assert_int_equal(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REGION), &bytes, sizeof bytes),
                     0);
    assert_int_equal(fi_enable(ep), 0);
    return ep;
}

bool has_kept(fid_ep *ep)
{
    const OwnSegment &segment = local::Endpoint::from(ep).receiver.segment;
    assert_non_null(segment.mapping.data());
    return !segment.fd;
}

std::byte *region_of(fid_ep *ep)
{
    return local::Endpoint::from(ep).receiver.region;
}

void send_to(fid_ep *from, Net &net, fid_ep *to, std::size_t length, unsigned seed)
{
    const std::string bytes = pattern(length, seed);
    assert_int_equal(fi_inject_writedata(from, bytes.data(), length, seed, 0, 0, FI_VMA_REGION_KEY), 0);
    fi_cq_data_entry entry{};
    ssize_t got;
    while ((got = fi_cq_read(net.cq, &entry, 1)) == -FI_EAGAIN) {
    }
    assert_int_equal(got, 1);
    assert_true(entry.data == seed && entry.len == length);
    assert_memory_equal(region_of(to), bytes.data(), length);
}

struct Sides {
    OwnDirectory directory;
    Net client;
    std::unique_ptr<Net> server = std::make_unique<Net>();
    ofi::Address address;
    fid_pep *pep = server->listen(address);

    fid_ep *caller()
    {
        fi_info info = *client.info;
        info.dest_addr = &address.v6;
        info.dest_addrlen = address.size();
        return with_region(client, &info);
    }

    // A connection from its beginning to its end. Whether the two ends have what an earlier one has left.
    std::pair<bool, bool> connect(unsigned seed = 1)
    {
        fid_ep *const caller = this->caller();
        assert_int_equal(fi_connect(caller, &address.v6, nullptr, 0), 0);
        const Event request = server->wait();
        expect(request, FI_CONNREQ, &pep->fid);
        fid_ep *const called = with_region(*server, request.info.get());
        const std::pair<bool, bool> kept = {has_kept(caller), has_kept(called)};
        assert_int_equal(fi_accept(called, nullptr, 0), 0);
        expect(server->wait(), FI_CONNECTED, &called->fid);
        expect(client.wait(), FI_CONNECTED, &caller->fid);
        for (const std::size_t length : {3U, 60000U, 96U, 97U}) {
            send_to(caller, *server, called, length, ++seed);
            send_to(called, client, caller, length, ++seed);
        }
        close_all({&caller->fid});
        expect(server->wait(), FI_SHUTDOWN, &called->fid);
        close_all({&called->fid});
        return kept;
    }
};

// Who asks has two of them by turns, as the peer's word comes with its answer; who is asked has one.
void connections_one_after_the_other(void **)
{
    Sides sides;
    for (unsigned round = 0; round < 8; ++round)
        assert_true(sides.connect(round * 10) == std::pair(round >= 2, round >= 1));
    close_all({&sides.pep->fid});
}

// A number that the peer has not sent, or of what it has not been asked to map, is answered as what was lost.
void numbers_that_nobody_knows(void **)
{
    Victim victim;
    const Raw raw = victim.connect();
    raw.send(message(MessageType::hello));
    LinkMessage asked = request(victim.address, 1);
    asked.offer.segment = 64;
    raw.send(asked, local::kOfferFdCount);
    const Event event = victim.net.wait();
    assert_int_equal(event.event, FI_CONNREQ);
    assert_int_equal(fi_reject(victim.pep, event.info->handle, nullptr, 0), 0);
    assert_true(raw.receive().type == MessageType::hello);
    assert_true(raw.receive().reason == RejectReason::program);
    asked.brings = 0;
    for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{64}, std::uint64_t{65}, UINT64_MAX}) {
        asked.connection += 1;
        asked.offer.segment = number;
        raw.send(asked);
        assert_int_equal(victim.net.poll().result, -FI_EAGAIN);
        const LinkMessage answer = raw.receive();
        assert_true(answer.type == MessageType::reject && answer.reason == RejectReason::resources);
    }
    victim.expect_alive();
}

// What the peer at the other end of one link has is of no use on another: that one request is refused.
void the_link_ends_before_the_offer(void **)
{
    Sides sides;
    for (int i = 0; i < 2; ++i)
        sides.connect();
    fid_ep *const late = sides.caller();
    assert_true(has_kept(late));
    close_all({&sides.pep->fid});
    sides.server = std::make_unique<Net>();
    assert_int_equal(sides.client.poll().result, -FI_EAGAIN); // reads the link's end
    assert_int_equal(fi_passive_ep(sides.server->fabric, sides.server->info.get(), &sides.pep, nullptr), 0);
    assert_int_equal(fi_setname(&sides.pep->fid, &sides.address.v6, sides.address.size()), 0);
    assert_int_equal(fi_pep_bind(sides.pep, &sides.server->eq->fid, 0), 0);
    assert_int_equal(fi_listen(sides.pep), 0);
    assert_int_equal(fi_connect(late, &sides.address.v6, nullptr, 0), 0);
    expect_refused(sides.client.wait(), &late->fid);
    close_all({&late->fid});
    sides.connect();
    close_all({&sides.pep->fid});
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
        cmocka_unit_test(connections_one_after_the_other),
        cmocka_unit_test(numbers_that_nobody_knows),
        cmocka_unit_test(the_link_ends_before_the_offer),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
