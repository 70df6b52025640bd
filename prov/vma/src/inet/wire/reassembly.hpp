// SPDX-License-Identifier: BSD-2-Clause
// Fragments of IPv4 (RFC 791, RFC 815) and IPv6 (RFC 8200, 4.5) put together in memory that is allocated once. Whatever
// peers send, a fixed number of datagrams is held, each for a fixed time, and what overlaps is dropped (RFC 5722).
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "prov/vma/src/inet/wire/frame.hpp"

namespace vma::inet {

// What became of a fragment; all but the first two lose at least that fragment.
enum class Joined : std::uint8_t {
    kWaiting,       // others are missing
    kWhole,         // the datagram is there
    kDuplicate,     // these bytes have been here: ignored
    kOverlap,       // other bytes have been here: the datagram is dropped
    kContradiction, // of its length with that of the other fragments: likewise
    kTooManyPieces, // that don't touch each other: likewise
    kBadEcn,        // of its fragments some can carry congestion marks, others not (RFC 3168, 5.3): likewise
    kBadHeaders,    // IPv6 extension headers in it are wrong: likewise
    kAbandoned,     // its datagram was dropped before
    kBadLength,     // no data, or not the last and no multiple of 8: the fragment is dropped
    kTooLong,       // it ends behind 65,535 bytes: likewise
};
inline constexpr unsigned kJoinedKinds = static_cast<unsigned>(Joined::kTooLong) + 1;

class Reassembler
{
public:
    static constexpr Nanos kTimeout4 = 30 * kSecond; // as Linux; RFC 1122, 3.3.2 says 60 to 120
    static constexpr Nanos kTimeout6 = 60 * kSecond; // RFC 8200, 4.5
    static constexpr unsigned kMaxPieces = 64;       // pieces with holes between them, of one datagram

    struct Counters {
        std::array<std::uint64_t, kJoinedKinds> joined{}; // by Joined
        std::uint64_t timed_out = 0;                      // datagrams
        std::uint64_t evicted = 0;                        // datagrams, the oldest, as room was needed
    };

    // `datagrams`: how many can be incomplete at a time, at least 1. Takes 64 KiB of address space for each, and memory
    // as fragments come. Each fragment looks through all of them, so they should be hundreds at most.
    explicit Reassembler(std::uint32_t datagrams);

    // A packet and a fragment as parse_frame gave them. For kWhole `out` is the packet, its payload valid until the
    // next join(); of its info, the time is that of the last fragment to come, and checksums_good is false.
    Joined join(const Packet &packet, const FragmentInfo &fragment, Nanos now, Packet &out);

    void expire(Nanos now);                      // drops what has waited for too long
    Nanos deadline() const { return deadline_; } // when expire() has something to do, kNever: nothing waits

    std::uint32_t waiting() const { return waiting_; } // datagrams, with those dropped whose fragments may still come
    const Counters &counters() const { return counters_; }

private:
    struct Piece { // bytes that are there, up to `end`
        std::uint16_t start;
        std::uint16_t end;
    };
    struct Datagram {
        enum class State : std::uint8_t { kFree, kWaiting, kAbandoned };

        State state = State::kFree;
        std::uint8_t ecn = 0;    // set of the ECN fields seen, a bit each
        std::uint16_t total = 0; // bytes, 0: the last fragment has not come
        std::uint32_t id = 0;
        std::uint32_t pieces = 0;
        Nanos expires = 0;
        std::uint64_t order = 0; // of its first fragment's coming
        Packet head;             // the first fragment's, or before that has come, any one's
        std::array<Piece, kMaxPieces> piece;
    };

    std::uint8_t *buffer(const Datagram &datagram);
    Datagram *find(const Packet &packet, std::uint32_t id);
    Datagram &start(const Packet &packet, std::uint32_t id, Nanos now);
    Datagram &take_free();
    Joined add(Datagram &datagram, const Packet &packet, const FragmentInfo &fragment);
    Joined place(Datagram &datagram, std::span<const std::uint8_t> data, std::uint16_t at);
    Joined finish_datagram(Datagram &datagram, const Packet &last, Packet &out);
    Joined count(Joined joined);
    void release(Datagram &datagram);
    void set_deadline();

    const std::uint32_t slots_;
    std::uint32_t waiting_ = 0;
    std::uint64_t order_ = 0;
    Nanos deadline_ = kNever;
    std::unique_ptr<Datagram[]> datagrams_;
    std::unique_ptr<std::uint8_t[]> arena_;
    Counters counters_;
};

} // namespace vma::inet
