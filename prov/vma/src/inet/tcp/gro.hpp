// SPDX-License-Identifier: BSD-2-Clause
// Generic receive offload: segments that came together and continue one another, gathered flow by flow into runs, so
// that TCP does once for a run what it would do for each segment. This only gathers; what a run does to a connection is
// runs.cpp's.
//
// A run is of plain segments: data, ACK and perhaps PSH and no other flag, no options but time stamps. They agree in
// all that says something of the connection but the acknowledgement and the window, which may move on; the ECN bits and
// both time stamps are the same, as with Linux. PSH, at which Linux ends one, is no end: nothing is held beyond
// flush(), and before that nobody would have been told anyway.
#pragma once

#include <array>
#include <cstdint>

#include "prov/vma/src/inet/tcp/segment.hpp"

namespace vma::inet {

class Gro
{
public:
    static constexpr unsigned kMostPieces = 64; // segments that are held at a time, of all runs

    struct Piece { // what a segment says that the run's first doesn't; its number follows from those before it
        std::span<const std::uint8_t> data; // in its frame
        Seq ack;
        std::uint16_t window;
        std::uint8_t flags;
        std::uint8_t next; // of the run
    };

    struct Run {
        Packet packet;   // of the first segment,
        Segment segment; // which is this
        Seq end;
        std::uint8_t first; // pieces
        std::uint8_t last;
        std::uint8_t count;
        std::uint8_t slot;
        bool open;

        std::uint32_t bytes() const { return end - segment.seq; }
    };

    // `streams`: runs that may be open at a time, at most kMostPieces are; 0: off, and nothing but this is asked.
    explicit Gro(std::uint32_t streams) : streams_(streams) { slots_.fill(kNone); }
    bool is_on() const { return streams_ != 0; }

    bool is_empty() const { return runs_used_ == 0; }
    bool is_full() const { return pieces_used_ == kMostPieces; } // clear() before the next segment is read
    Segment &place() { return runs_[runs_used_].segment; }       // where that is read to

    // The open run that the segment at place() may continue, or has to wait for if it doesn't; nullptr: none.
    Run *find(const Packet &packet);
    // It continues the run, and is part of it now; else nothing has changed.
    bool append(Run &run, const Packet &packet);
    // It is the first of a new run; else it is none for runs, or too many are open. After find(), and what that found
    // is closed.
    bool begin(const Packet &packet);

    void close(Run &run) // what it says can be read until clear()
    {
        run.open = false;
        slots_[run.slot] = kNone;
        --open_;
    }
    // Calls act(Run &) for each open run, in the order of their beginnings, and forgets all.
    template <typename Act> void clear(Act act)
    {
        for (unsigned i = 0; i < runs_used_; ++i) {
            if (!runs_[i].open)
                continue;
            close(runs_[i]);
            act(runs_[i]);
        }
        runs_used_ = pieces_used_ = 0;
    }

    const Piece &piece(std::uint8_t index) const { return pieces_[index]; }

private:
    static constexpr std::uint8_t kNone = 0xff;
    static constexpr unsigned kSlotBits = 6; // one flow each: of two in one slot the later one ends the other's run

    static std::uint8_t slot_of(const Packet &packet, const Segment &segment);
    static bool is_plain(const Packet &packet, const Segment &segment);
    std::uint8_t add(const Segment &segment);

    const std::uint32_t streams_;
    std::uint8_t slot_ = 0; // of the segment at place()
    unsigned open_ = 0;
    unsigned runs_used_ = 0;
    unsigned pieces_used_ = 0;
    std::array<std::uint8_t, 1U << kSlotBits> slots_; // runs
    std::array<Piece, kMostPieces> pieces_;
    std::array<Run, kMostPieces> runs_; // no more than pieces
};

} // namespace vma::inet
