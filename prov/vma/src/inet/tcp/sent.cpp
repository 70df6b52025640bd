// SPDX-License-Identifier: BSD-2-Clause
// The two lists of a scoreboard and the counts that follow each change of a record.
#include "prov/vma/src/inet/tcp/sent.hpp"

namespace vma::inet {

void SentList::enter_flight(SentPool &pool, SentIndex index)
{
    Sent &sent = pool[index];
    sent.older = youngest_;
    sent.younger = kNoSent;
    (youngest_ != kNoSent ? pool[youngest_].younger : oldest_) = index;
    youngest_ = index;
    flight_ += sent.length();
}

void SentList::leave_flight(SentPool &pool, SentIndex index)
{
    const Sent &sent = pool[index];
    (sent.older != kNoSent ? pool[sent.older].younger : oldest_) = sent.younger;
    (sent.younger != kNoSent ? pool[sent.younger].older : youngest_) = sent.older;
    flight_ -= sent.length();
}

bool SentList::append(SentPool &pool, Seq seq, Seq end, bool fin, Nanos now)
{
    const SentIndex index = pool.take();
    if (index == kNoSent)
        return false;
    Sent &sent = pool[index];
    sent.seq = seq;
    sent.end = end;
    sent.fin = fin;
    sent.at = now;
    sent.prev = last_;
    (last_ != kNoSent ? pool[last_].next : first_) = index;
    last_ = index;
    enter_flight(pool, index);
    return true;
}

void SentList::mark_sacked(SentPool &pool, SentIndex index)
{
    Sent &sent = pool[index];
    if (sent.sacked)
        return;
    if (sent.lost)
        lost_ -= sent.length();
    else
        leave_flight(pool, index);
    sent.lost = false;
    sent.sacked = true;
    sacked_ += sent.length();
}

void SentList::mark_lost(SentPool &pool, SentIndex index)
{
    Sent &sent = pool[index];
    if (sent.lost || sent.sacked)
        return;
    leave_flight(pool, index);
    sent.lost = true;
    lost_ += sent.length();
    if (lost_from_ == kNoSent || before(sent.seq, pool[lost_from_].seq))
        lost_from_ = index;
}

void SentList::unmark_lost(SentPool &pool, SentIndex index)
{
    Sent &sent = pool[index];
    if (!sent.lost)
        return;
    sent.lost = false;
    lost_ -= sent.length();
    enter_flight(pool, index);
}

void SentList::forget_sacks(SentPool &pool)
{
    for (SentIndex i = first_; i != kNoSent; i = pool[i].next) {
        Sent &sent = pool[i];
        if (!sent.sacked)
            continue;
        sent.sacked = false;
        sent.lost = true;
        lost_ += sent.length();
    }
    sacked_ = 0;
    lost_from_ = first_;
}

void SentList::retransmitted(SentPool &pool, SentIndex index, Nanos now)
{
    Sent &sent = pool[index];
    if (sent.lost)
        lost_ -= sent.length();
    else
        leave_flight(pool, index);
    sent.lost = false;
    sent.retransmitted = true;
    sent.at = now;
    enter_flight(pool, index);
}

void SentList::pop_front(SentPool &pool)
{
    const SentIndex index = first_;
    const Sent &sent = pool[index];
    if (sent.sacked)
        sacked_ -= sent.length();
    else if (sent.lost)
        lost_ -= sent.length();
    else
        leave_flight(pool, index);
    first_ = sent.next;
    (first_ != kNoSent ? pool[first_].prev : last_) = kNoSent;
    if (searched_ == index)
        searched_ = first_;
    if (lost_from_ == index)
        lost_from_ = first_;
    pool.give(index);
}

void SentList::trim_front(SentPool &pool, Seq to)
{
    Sent &sent = pool[first_];
    const std::uint32_t n = to - sent.seq;
    (sent.sacked ? sacked_ : sent.lost ? lost_ : flight_) -= n;
    sent.seq = to;
}

bool SentList::split(SentPool &pool, SentIndex index, Seq at)
{
    const SentIndex rest = pool.take();
    if (rest == kNoSent)
        return false;
    Sent &front = pool[index];
    Sent &back = pool[rest];
    back = front;
    front.end = at;
    front.fin = false;
    back.seq = at;
    back.prev = index;
    front.next = rest;
    (back.next != kNoSent ? pool[back.next].prev : last_) = rest;
    if (!front.sacked && !front.lost) { // both halves in flight, as old as each other
        back.older = index;
        (back.younger != kNoSent ? pool[back.younger].older : youngest_) = rest;
        front.younger = rest;
    }
    return true;
}

void SentList::clear(SentPool &pool)
{
    for (SentIndex i = first_; i != kNoSent;) {
        const SentIndex next = pool[i].next;
        pool.give(i);
        i = next;
    }
    *this = SentList();
}

SentIndex SentList::find(const SentPool &pool, Seq seq)
{
    SentIndex i = searched_ != kNoSent ? searched_ : first_;
    while (i != kNoSent && pool[i].prev != kNoSent && before(seq, pool[i].seq))
        i = pool[i].prev;
    while (i != kNoSent && at_or_before(pool[i].end, seq))
        i = pool[i].next;
    if (i != kNoSent)
        searched_ = i;
    return i;
}

SentIndex SentList::next_lost(const SentPool &pool)
{
    if (lost_ == 0)
        return kNoSent;
    while (lost_from_ != kNoSent && !pool[lost_from_].lost)
        lost_from_ = pool[lost_from_].next;
    return lost_from_;
}

} // namespace vma::inet
