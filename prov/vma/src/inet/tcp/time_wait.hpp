// SPDX-License-Identifier: BSD-2-Clause
// TIME-WAIT (RFC 9293, 3.6.1): what is left of a connection for a minute, small enough to have many. All wait equally
// long, so their order of coming is that of going; when there is no room the oldest goes early, as in the kernel.
#pragma once

#include <memory>

#include "prov/vma/src/inet/tcp/answer_limit.hpp"
#include "prov/vma/src/inet/tcp/seq.hpp"
#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

struct TimeWait {
    Flow flow;
    std::uint32_t hash = 0;
    Seq nxt = 0; // what we would send next
    Seq rcv = 0; // what we expect next
    std::uint32_t stamp_recent = 0;
    std::uint32_t stamp_offset = 0;
    bool timestamps = false;
    bool dead = false; // its flow lives again; the place is free when its turn comes
    bool mute = false; // another TCP has the connection (handover.cpp): what still comes here is not answered
    std::uint16_t window = 0;
    Nanos until = 0;
    AnswerLimit answers;
};

class TimeWaits
{
public:
    static constexpr Nanos kLength = 60 * kSecond; // twice a segment's life of 30 s, as the kernel has it

    explicit TimeWaits(std::uint32_t most) : most_(most), ring_(std::make_unique<TimeWait[]>(most)) {}

    bool full() const { return used_ == most_; }
    bool empty() const { return used_ == 0; }
    TimeWait &oldest() { return ring_[from_]; }
    std::uint32_t oldest_index() const { return from_; }
    Nanos deadline() const { return used_ != 0 ? ring_[from_].until : kNever; }

    std::uint32_t push(const TimeWait &entry) // not when full
    {
        const std::uint32_t index = (from_ + used_++) % most_;
        ring_[index] = entry;
        return index;
    }
    void pop() // the oldest
    {
        from_ = (from_ + 1) % most_;
        --used_;
    }
    TimeWait &operator[](std::uint32_t index) { return ring_[index]; }
    const TimeWait &operator[](std::uint32_t index) const { return ring_[index]; }

private:
    const std::uint32_t most_;
    std::unique_ptr<TimeWait[]> ring_;
    std::uint32_t from_ = 0;
    std::uint32_t used_ = 0;
};

} // namespace vma::inet
