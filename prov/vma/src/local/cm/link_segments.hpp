// SPDX-License-Identifier: BSD-2-Clause
// Segments that the two ends of a link keep: what one connection has left the next one takes by its number, and it is
// not made, sent, mapped and touched anew. Both ends keep them in the places that their numbers say, so they agree
// without a word but the one that says "I let go of that one", which goes with the next offer. Links of this user's
// processes alone have this: what lies in a segment the same peer has written.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/fd.hpp"
#include "core/spinlock.hpp"
#include "local/segment.hpp"

namespace vma::local {

inline constexpr std::size_t kKeptSegments = 64;                   // of each end of a link, in use or not
inline constexpr std::size_t kIdleSegments = 16;                   // of these, of our own that no connection uses
inline constexpr std::size_t kWordsAtOnce = 4;                     // of each kind, with one message
inline constexpr std::size_t kKeptBytes = std::size_t{128} * 1024; // of one that is idle, from its beginning on

class LinkSegments;

// Those of all links of a fabric that no connection uses.
struct IdleSegments {
    std::atomic<std::size_t> own{0};
    std::atomic<std::size_t> peers{0};
};

// What each end tells the other of segments, by their numbers; zeros where there is no more.
struct SegmentWords {
    std::uint64_t let_go[kWordsAtOnce];  // yours: a use has ended
    std::uint64_t dropped[kWordsAtOnce]; // mine: they will not be offered again
};

struct PeerSegment {
    core::UniqueFd fd; // until it is mapped
    Mapping mapping;
};

// A segment of the peer's, from its offer on until nothing of the connection can touch it any more.
class SegmentUse
{
public:
    SegmentUse() noexcept = default;
    explicit SegmentUse(core::UniqueFd fd) noexcept; // of this connection alone
    SegmentUse(std::shared_ptr<LinkSegments> keeper, std::uint64_t number,
               std::shared_ptr<PeerSegment> segment) noexcept;
    SegmentUse(SegmentUse &&other) noexcept = default;
    SegmentUse &operator=(SegmentUse &&other) noexcept;
    SegmentUse(const SegmentUse &) = delete;
    SegmentUse &operator=(const SegmentUse &) = delete;
    ~SegmentUse() { end(); }

    explicit operator bool() const noexcept { return segment_ != nullptr; }
    // -FI_EINVAL: there is none, or it is no sealed memory of that size. Uses of one segment are mapped one by one.
    int map(std::size_t size) noexcept;
    std::byte *data() const noexcept { return segment_->mapping.data(); } // after map()

private:
    void end() noexcept;

    std::shared_ptr<LinkSegments> keeper_; // nullptr: nobody keeps it
    std::uint64_t number_ = 0;
    std::shared_ptr<PeerSegment> segment_;
};

// The segment that an endpoint receives in.
class OwnSegment
{
public:
    OwnSegment() noexcept = default;
    OwnSegment(const OwnSegment &) = delete;
    OwnSegment &operator=(const OwnSegment &) = delete;
    ~OwnSegment();

    // One that `keeper` has, if there is one of that size: its first `cleared` bytes are zeros, as all of a new one
    // are. 0 or a negative fi_errno.
    int open(std::shared_ptr<LinkSegments> keeper, std::size_t size, std::size_t cleared) noexcept;
    // It is going to be offered over the link that has this keeper (nullptr: nobody shall keep it). Its number, 0 where
    // it has none. -FI_ECONNREFUSED: another link's peer has it, and there is nothing to send any more.
    int number_for(const std::shared_ptr<LinkSegments> &keeper, std::uint64_t &number) noexcept;
    void offered() noexcept; // once for each time
    // Nobody keeps it from here on; its memory is another's to end.
    void release() noexcept;
    void used_to(std::size_t offset) noexcept { used_ = offset; } // as far as is known
    bool was_kept() const noexcept { return was_kept_; }          // open() found one

    core::UniqueFd fd; // to be sent; none once the peer has it
    Mapping mapping;

private:
    std::shared_ptr<LinkSegments> keeper_;
    std::uint64_t number_ = 0;
    bool was_kept_ = false;
    bool was_offered_ = false; // somebody may have it of whose end nobody will hear, unless there is a keeper
    std::size_t used_ = SIZE_MAX;
};

// What one end of a link keeps. Thread-safe; endpoints may outlive the link.
class LinkSegments : public std::enable_shared_from_this<LinkSegments>
{
public:
    explicit LinkSegments(std::shared_ptr<IdleSegments> idle) noexcept;
    ~LinkSegments();
    LinkSegments(const LinkSegments &) = delete;
    LinkSegments &operator=(const LinkSegments &) = delete;
    void close() noexcept; // the link has ended: nothing is kept any more

    // ---- of our own
    // The one of that size that was used last, and that the peer has let go of. False: there is none.
    bool take(std::size_t size, Mapping &out, std::uint64_t &number) noexcept;
    // A place for one that is offered for the first time: its number, 0: there is no room.
    std::uint64_t add() noexcept;
    void lend(std::uint64_t number) noexcept; // once for each offer
    // `used`: how many bytes of it may have been touched.
    void give_back(std::uint64_t number, Mapping mapping, std::size_t used) noexcept;
    void drop(std::uint64_t number) noexcept; // it is not kept any more
    void forget() noexcept;                   // the peer may have lost some: these are used up, and no more

    // ---- the peer's
    SegmentUse keep(std::uint64_t number, core::UniqueFd fd) noexcept;
    SegmentUse find(std::uint64_t number) noexcept; // empty: it never came, or was lost
    void lose(std::uint64_t number) noexcept;
    void let_go(std::uint64_t number, const std::shared_ptr<PeerSegment> &segment) noexcept;

    // ---- words
    void tell(SegmentWords &out) noexcept;
    void hear(const SegmentWords &words) noexcept;

private:
    struct Own {
        std::uint64_t number = 0;     // 0: the place is free
        std::uint64_t idle_since = 0; // by a counter; 0: an endpoint has it
        std::uint32_t lent = 0;       // offers that the peer has not let go of
        bool is_lost = false;
        std::size_t used = 0;      // of an idle one
        Mapping mapping;           // of an idle one
        std::uint64_t dropped = 0; // the number of an earlier one, which the peer is to be told
    };
    struct Peers {
        std::uint64_t number = 0;
        std::uint32_t uses = 0;
        std::uint32_t unsaid = 0; // uses that have ended
        std::shared_ptr<PeerSegment> segment;
    };

    Own *find_own(std::uint64_t number) noexcept;
    Peers *find_peers(std::uint64_t number) noexcept;
    Mapping leave_idle(Own &place) noexcept;
    Mapping clear(Own &place) noexcept;
    std::shared_ptr<PeerSegment> clear(Peers &place) noexcept;
    bool has_room() const noexcept;
    Own *longest_idle() noexcept;
    bool is_let_go(std::uint64_t number) noexcept;
    void was_let_go(std::uint64_t number) noexcept;

    const std::shared_ptr<IdleSegments> all_idle_;
    core::SpinLock lock_;
    bool closed_ = false;
    std::array<Own, kKeptSegments> own_;
    std::array<Peers, kKeptSegments> peers_;
    std::size_t idle_ = 0;
    std::uint64_t uses_ = 0;
    std::uint64_t numbers_ = 0;
};

} // namespace vma::local
