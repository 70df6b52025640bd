// SPDX-License-Identifier: BSD-2-Clause
#include "local/cm/link_segments.hpp"

#include <cstring>
#include <new>
#include <sys/mman.h>
#include <utility>

#include <rdma/fi_errno.h>

namespace vma::local {

namespace {

constexpr std::size_t place_of(std::uint64_t number)
{
    return number % kKeptSegments;
}

// A fabric with many links keeps no more than that: of its own, as their memory counts; of its peers', as mappings do.
constexpr std::size_t kOwnInFabric = 64;
constexpr std::size_t kPeersInFabric = 128;

// What nobody uses goes back to the system, up to `from`. False: it can't, as it is locked in memory.
bool trim(const Mapping &mapping, std::size_t from) noexcept
{
    return mapping.size() <= from || ::madvise(mapping.data() + from, mapping.size() - from, MADV_REMOVE) == 0;
}

} // namespace

// ---- SegmentUse

SegmentUse::SegmentUse(core::UniqueFd fd) noexcept : segment_(new (std::nothrow) PeerSegment{std::move(fd), Mapping()})
{
}

SegmentUse::SegmentUse(std::shared_ptr<LinkSegments> keeper, std::uint64_t number,
                       std::shared_ptr<PeerSegment> segment) noexcept
    : keeper_(std::move(keeper)), number_(number), segment_(std::move(segment))
{
}

SegmentUse &SegmentUse::operator=(SegmentUse &&other) noexcept
{
    if (this != &other) {
        end();
        keeper_ = std::move(other.keeper_);
        number_ = other.number_;
        segment_ = std::move(other.segment_);
    }
    return *this;
}

void SegmentUse::end() noexcept
{
    if (keeper_ && segment_)
        keeper_->let_go(number_, segment_);
    segment_.reset();
    keeper_.reset();
}

int SegmentUse::map(std::size_t size) noexcept
{
    if (!segment_)
        return -FI_EINVAL;
    if (segment_->mapping)
        return segment_->mapping.size() == size ? 0 : -FI_EINVAL;
    const int error = map_shared(segment_->fd.get(), size, segment_->mapping);
    if (error == 0)
        segment_->fd.reset();
    return error;
}

// ---- OwnSegment

OwnSegment::~OwnSegment()
{
    if (!keeper_ || !mapping)
        return;
    if (fd && !was_offered_) // the peer has never heard of it
        keeper_->drop(number_);
    else
        keeper_->give_back(number_, std::move(mapping), used_);
}

int OwnSegment::open(std::shared_ptr<LinkSegments> keeper, std::size_t size, std::size_t cleared) noexcept
{
    if (keeper && keeper->take(whole_pages(size), mapping, number_)) {
        keeper_ = std::move(keeper);
        was_kept_ = true;
        std::memset(mapping.data(), 0, cleared);
        return 0;
    }
    SharedMemory made;
    if (const int error = create_shared("vma-endpoint", size, made))
        return error;
    fd = std::move(made.fd);
    mapping = std::move(made.mapping);
    return 0;
}

int OwnSegment::number_for(const std::shared_ptr<LinkSegments> &keeper, std::uint64_t &number) noexcept
{
    if (!keeper_ && !fd)
        return -FI_EOPBADSTATE;
    if (keeper_ && keeper_ != keeper) {
        if (!fd)
            return -FI_ECONNREFUSED;
        keeper_->drop(number_);
        keeper_.reset();
    }
    if (!keeper_ && keeper && !was_offered_) {
        number_ = keeper->add();
        keeper_ = number_ != 0 ? keeper : nullptr;
    }
    number = keeper_ ? number_ : 0;
    return 0;
}

void OwnSegment::offered() noexcept
{
    was_offered_ = true;
    if (keeper_)
        keeper_->lend(number_);
}

void OwnSegment::release() noexcept
{
    if (keeper_)
        keeper_->drop(number_);
    keeper_.reset();
    mapping.release();
}

// ---- LinkSegments: our own

LinkSegments::LinkSegments(std::shared_ptr<IdleSegments> idle) noexcept : all_idle_(std::move(idle)) {}

LinkSegments::~LinkSegments()
{
    close();
}

void LinkSegments::close() noexcept
{
    std::array<Mapping, kKeptSegments> own;
    std::array<std::shared_ptr<PeerSegment>, kKeptSegments> peers;
    const core::SpinGuard guard(lock_);
    closed_ = true;
    for (std::size_t i = 0; i < kKeptSegments; ++i) {
        own[i] = clear(own_[i]);
        peers[i] = clear(peers_[i]);
    }
}

LinkSegments::Own *LinkSegments::find_own(std::uint64_t number) noexcept
{
    Own &place = own_[place_of(number)];
    return number != 0 && place.number == number ? &place : nullptr;
}

Mapping LinkSegments::leave_idle(Own &place) noexcept
{
    if (place.idle_since != 0) {
        --idle_;
        all_idle_->own.fetch_sub(1, std::memory_order_relaxed);
        place.idle_since = 0;
    }
    return std::move(place.mapping);
}

// What was idle there is the caller's to end, without the lock.
Mapping LinkSegments::clear(Own &place) noexcept
{
    Mapping left = leave_idle(place);
    const std::uint64_t told = place.number != 0 ? place.number : place.dropped;
    place = Own();
    place.dropped = told;
    return left;
}

bool LinkSegments::take(std::size_t size, Mapping &out, std::uint64_t &number) noexcept
{
    const core::SpinGuard guard(lock_);
    Own *best = nullptr;
    for (Own &place : own_) {
        if (place.idle_since != 0 && place.lent == 0 && place.mapping.size() == size &&
            (best == nullptr || place.idle_since > best->idle_since))
            best = &place;
    }
    if (best == nullptr)
        return false;
    number = best->number;
    out = leave_idle(*best);
    return true;
}

std::uint64_t LinkSegments::add() noexcept
{
    const core::SpinGuard guard(lock_);
    for (std::size_t i = 0; i < kKeptSegments && !closed_; ++i) {
        if (own_[i].number == 0)
            return own_[i].number = ++numbers_ * kKeptSegments + i;
    }
    return 0;
}

void LinkSegments::lend(std::uint64_t number) noexcept
{
    const core::SpinGuard guard(lock_);
    if (Own *const place = find_own(number))
        ++place->lent;
}

bool LinkSegments::has_room() const noexcept
{
    return idle_ < kIdleSegments && all_idle_->own.load(std::memory_order_relaxed) < kOwnInFabric;
}

// What has been idle longest goes for this one: the peer has not let go of it, perhaps, and never will.
LinkSegments::Own *LinkSegments::longest_idle() noexcept
{
    Own *oldest = nullptr;
    for (Own &place : own_) {
        if (place.idle_since != 0 && (oldest == nullptr || place.idle_since < oldest->idle_since))
            oldest = &place;
    }
    return oldest;
}

bool LinkSegments::is_let_go(std::uint64_t number) noexcept
{
    const core::SpinGuard guard(lock_);
    const Own *const place = find_own(number);
    return place != nullptr && place->lent == 0;
}

// Holes are made in what the peer has let go of alone: it may send from there what comes again by the kernel, or look
// where its last slot has ended. What is unmapped here stays where it is as long as the peer has it.
void LinkSegments::give_back(std::uint64_t number, Mapping mapping, std::size_t used) noexcept
{
    const bool is_free = used > kKeptBytes && is_let_go(number);
    const bool is_trimmed = is_free && trim(mapping, kKeptBytes);
    Mapping left;
    bool left_is_free = false;
    {
        const core::SpinGuard guard(lock_);
        Own *const place = find_own(number);
        if (place == nullptr)
            return;
        const bool is_wanted = !place->is_lost && is_trimmed == is_free;
        Own *const oldest = is_wanted && !has_room() ? longest_idle() : nullptr;
        if (oldest != nullptr) {
            left_is_free = oldest->lent == 0;
            left = clear(*oldest);
        }
        if (!is_wanted || !has_room()) {
            clear(*place);
        } else {
            place->mapping = std::move(mapping);
            place->used = is_trimmed ? kKeptBytes : used;
            place->idle_since = ++uses_;
            ++idle_;
            all_idle_->own.fetch_add(1, std::memory_order_relaxed);
        }
    }
    if (left_is_free)
        trim(left, 0); // the peer has it mapped until it is told
}

void LinkSegments::drop(std::uint64_t number) noexcept
{
    Mapping left;
    const core::SpinGuard guard(lock_);
    if (Own *const place = find_own(number))
        left = clear(*place);
}

void LinkSegments::forget() noexcept
{
    std::array<Mapping, kKeptSegments> left;
    const core::SpinGuard guard(lock_);
    for (std::size_t i = 0; i < kKeptSegments; ++i) {
        if (own_[i].idle_since != 0)
            left[i] = clear(own_[i]);
        else
            own_[i].is_lost = own_[i].number != 0;
    }
}

void LinkSegments::was_let_go(std::uint64_t number) noexcept
{
    Mapping idle;
    std::size_t used = 0;
    {
        const core::SpinGuard guard(lock_);
        Own *const place = find_own(number);
        if (place == nullptr || place->lent == 0 || --place->lent != 0)
            return;
        used = place->used;
        if (place->idle_since != 0 && used > kKeptBytes)
            idle = leave_idle(*place);
    }
    if (idle)
        give_back(number, std::move(idle), used);
}

// ---- LinkSegments: the peer's

LinkSegments::Peers *LinkSegments::find_peers(std::uint64_t number) noexcept
{
    Peers &place = peers_[place_of(number)];
    return number != 0 && place.number == number ? &place : nullptr;
}

// The caller's to end, without the lock.
std::shared_ptr<PeerSegment> LinkSegments::clear(Peers &place) noexcept
{
    if (place.number != 0 && place.uses == 0)
        all_idle_->peers.fetch_sub(1, std::memory_order_relaxed);
    std::shared_ptr<PeerSegment> left = std::move(place.segment);
    place = {};
    return left;
}

SegmentUse LinkSegments::keep(std::uint64_t number, core::UniqueFd fd) noexcept
{
    std::shared_ptr<PeerSegment> segment(new (std::nothrow) PeerSegment{std::move(fd), Mapping()});
    std::shared_ptr<PeerSegment> old;
    if (!segment)
        return {};
    const core::SpinGuard guard(lock_);
    Peers &place = peers_[place_of(number)];
    old = clear(place);
    place.number = number;
    place.uses = 1;
    place.segment = segment;
    return {shared_from_this(), number, std::move(segment)};
}

SegmentUse LinkSegments::find(std::uint64_t number) noexcept
{
    const core::SpinGuard guard(lock_);
    Peers *const place = find_peers(number);
    if (place == nullptr)
        return {};
    if (place->uses++ == 0)
        all_idle_->peers.fetch_sub(1, std::memory_order_relaxed);
    return {shared_from_this(), number, place->segment};
}

void LinkSegments::lose(std::uint64_t number) noexcept
{
    std::shared_ptr<PeerSegment> left;
    const core::SpinGuard guard(lock_);
    if (Peers *const place = find_peers(number))
        left = clear(*place);
}

// One that was never mapped would cost a descriptor, and is not kept; nor is one where there are many. Then nothing is
// said, and the peer takes another.
void LinkSegments::let_go(std::uint64_t number, const std::shared_ptr<PeerSegment> &segment) noexcept
{
    std::shared_ptr<PeerSegment> left;
    const core::SpinGuard guard(lock_);
    Peers *const place = find_peers(number);
    if (place == nullptr || place->segment != segment || place->uses == 0)
        return;
    ++place->unsaid;
    if (--place->uses != 0)
        return;
    const bool is_one_of_many = all_idle_->peers.fetch_add(1, std::memory_order_relaxed) >= kPeersInFabric;
    if (is_one_of_many || !segment->mapping)
        left = clear(*place);
}

// ---- LinkSegments: words

void LinkSegments::tell(SegmentWords &out) noexcept
{
    std::size_t let_go = 0;
    std::size_t dropped = 0;
    const core::SpinGuard guard(lock_);
    out = {};
    for (std::size_t i = 0; i < kKeptSegments; ++i) {
        for (; peers_[i].unsaid != 0 && let_go < kWordsAtOnce; --peers_[i].unsaid)
            out.let_go[let_go++] = peers_[i].number;
        if (own_[i].dropped != 0 && dropped < kWordsAtOnce)
            out.dropped[dropped++] = std::exchange(own_[i].dropped, 0);
    }
}

void LinkSegments::hear(const SegmentWords &words) noexcept
{
    for (const std::uint64_t number : words.let_go)
        was_let_go(number);
    for (const std::uint64_t number : words.dropped)
        lose(number);
}

} // namespace vma::local
