// SPDX-License-Identifier: BSD-2-Clause
// The segments that were sent and not yet acknowledged: the scoreboard of SACK (RFC 2018, 6675) and RACK's times (RFC
// 8985). Records come from one pool of the stack; each is on its connection's list by sequence, and while it is in
// flight (neither held lost nor reported received) on a second one by the time of its last transmission.
#pragma once

#include <memory>

#include "prov/vma/src/inet/tcp/seq.hpp"
#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

using SentIndex = std::uint32_t;
inline constexpr SentIndex kNoSent = ~SentIndex{0};

struct Sent {
    Seq seq = 0;
    Seq end = 0; // behind its last byte, and its FIN if it has one
    Nanos at = 0;
    SentIndex next = kNoSent; // by sequence
    SentIndex prev = kNoSent;
    SentIndex younger = kNoSent; // by time
    SentIndex older = kNoSent;
    bool sacked : 1 = false;
    bool lost : 1 = false;          // to be sent again
    bool retransmitted : 1 = false; // at least once: no round trip can be told from it (Karn)
    bool fin : 1 = false;

    std::uint32_t length() const { return end - seq; }
};

class SentPool
{
public:
    explicit SentPool(std::uint32_t records)
        : records_(std::make_unique<Sent[]>(records)), total_(records), free_(records)
    {
    }

    SentIndex take()
    {
        SentIndex index = head_;
        if (index != kNoSent)
            head_ = records_[index].next;
        else if (fresh_ != total_)
            index = fresh_++;
        else
            return kNoSent;
        --free_;
        records_[index] = Sent();
        return index;
    }
    void give(SentIndex index)
    {
        records_[index].next = head_;
        head_ = index;
        ++free_;
    }
    Sent &operator[](SentIndex index) { return records_[index]; }
    const Sent &operator[](SentIndex index) const { return records_[index]; }
    std::uint32_t available() const { return free_; }

private:
    std::unique_ptr<Sent[]> records_;
    const std::uint32_t total_;
    std::uint32_t free_;
    std::uint32_t fresh_ = 0;
    SentIndex head_ = kNoSent;
};

// One connection's records. `flight` counts the bytes in flight, as RFC 6675 calls pipe.
class SentList
{
public:
    bool empty() const { return first_ == kNoSent; }
    SentIndex first() const { return first_; }
    SentIndex last() const { return last_; }
    SentIndex oldest() const { return oldest_; }
    std::uint32_t flight() const { return flight_; }
    std::uint32_t sacked() const { return sacked_; } // bytes
    std::uint32_t lost() const { return lost_; }     // bytes that wait to be sent again

    // A new segment at the end. False: no record is left.
    bool append(SentPool &pool, Seq seq, Seq end, bool fin, Nanos now);

    void mark_sacked(SentPool &pool, SentIndex index);
    void mark_lost(SentPool &pool, SentIndex index);
    void unmark_lost(SentPool &pool, SentIndex index); // it was not: in flight as it was sent
    void forget_sacks(SentPool &pool);                 // the receiver has reneged: all that it reported is lost
    void retransmitted(SentPool &pool, SentIndex index, Nanos now);

    void pop_front(SentPool &pool);
    void trim_front(SentPool &pool, Seq to);             // the first record's beginning was acknowledged
    bool split(SentPool &pool, SentIndex index, Seq at); // `index` keeps what is before `at`. False: no record is left
    void clear(SentPool &pool);

    // The first record that ends behind `seq`; from the place of the last search on, which is mostly near.
    SentIndex find(const SentPool &pool, Seq seq);

    SentIndex next_lost(const SentPool &pool); // lowest first (RFC 6675, 4: NextSeg)

private:
    void enter_flight(SentPool &pool, SentIndex index);
    void leave_flight(SentPool &pool, SentIndex index);

    SentIndex first_ = kNoSent;
    SentIndex last_ = kNoSent;
    SentIndex oldest_ = kNoSent;
    SentIndex youngest_ = kNoSent;
    SentIndex searched_ = kNoSent;  // where find() ended
    SentIndex lost_from_ = kNoSent; // no record before it is lost
    std::uint32_t flight_ = 0;
    std::uint32_t sacked_ = 0;
    std::uint32_t lost_ = 0;
};

} // namespace vma::inet
