// SPDX-License-Identifier: BSD-2-Clause
// What a connection knows of losses: which phase of recovery it is in, RACK's state, the tail's probe.
#pragma once

#include <cstdint>

#include "prov/vma/src/inet/tcp/seq.hpp"
#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

enum class Phase : std::uint8_t { kOpen, kRecovery, kLoss };

// RFC 8985, 6.1.
struct Rack {
    Nanos sent = 0; // of the segment delivered last
    Seq end = 0;
    Nanos rtt = 0;
    Seq highest = 0; // end of the highest segment delivered
    bool reordering = false;
    std::uint8_t window_steps = 1;    // of a quarter of the least round trip
    std::uint8_t window_persists = 0; // recoveries until it is one again
    Seq dsack_round = 0;
    bool in_dsack_round = false;

    // A segment arrived twice: some loss was none. RACK waits longer (RFC 8985, 6.2 step 4), once a round trip.
    void note_dsack(Seq nxt)
    {
        constexpr std::uint8_t kWindowLasts = 16; // recoveries: RFC 8985, 6.2
        constexpr std::uint8_t kMostSteps = 254;
        if (in_dsack_round)
            return;
        in_dsack_round = true;
        dsack_round = nxt;
        if (window_steps < kMostSteps)
            ++window_steps;
        window_persists = kWindowLasts;
    }
};

// RFC 8985, 7: the probe that is under way.
struct TailProbe {
    bool pending = false; // to be sent
    bool active = false;
    bool retransmission = false;
    Seq end = 0;
};

// How what was lost is found, sent again, and paid for (recovery.cpp).
struct Recovery {
    Phase phase = Phase::kOpen;
    Seq recover = 0; // nxt when the phase, or the answer to ECN, began
    bool ecn_answered = false;
    std::uint32_t dup_acks = 0; // without SACK: RFC 6582
    std::uint32_t prr_delivered = 0;
    std::uint32_t prr_out = 0;
    std::uint32_t prr_flight = 0;
    std::uint32_t undo_stamp = 0; // time stamp of the phase's first retransmission
    Seq undo_from = 0;            // and its place
    bool can_undo = false;
    Rack rack;
    TailProbe tail;

    // From here on RFC 6937 says how much leaves.
    void enter(Seq una, Seq nxt)
    {
        phase = Phase::kRecovery;
        recover = nxt;
        prr_delivered = 0;
        prr_out = 0;
        prr_flight = nxt - una;
        can_undo = false;
        tail.active = tail.pending = false;
    }
    void leave()
    {
        open();
        if (rack.window_persists != 0 && --rack.window_persists == 0)
            rack.window_steps = 1;
    }
    void open()
    {
        phase = Phase::kOpen;
        dup_acks = 0;
        can_undo = false;
    }
};

} // namespace vma::inet
