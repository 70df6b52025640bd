// SPDX-License-Identifier: BSD-2-Clause
// The index of tag matching: what a list that has grown long is found by. Short lists never come here.
#include "rdm/match.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace vma::rdm {

namespace {

constexpr unsigned kLeastBits = 5; // 32 chains, for the 17 entries that a first table has at least

} // namespace

template <typename Entry>
MatchList<Entry> &MatchTable<Entry>::chain(const void *source, std::uint64_t tag) const noexcept
{
    // Programs count in any field of a tag, and sources lie in steps of their size. A multiplication carries upward
    // only: what it made is brought down and multiplied again, and the top bits depend on all.
    const std::uint64_t named = reinterpret_cast<std::uintptr_t>(source) & named_;
    std::uint64_t hash = (tag & cared_) * 0x9e3779b97f4a7c15 + named * 0xbf58476d1ce4e5b9;
    hash = (hash ^ hash >> 32) * 0x94d049bb133111eb;
    return chains_[static_cast<std::size_t>(hash >> (64 - bits_))];
}

// Chains are gone through from their start, and each new one gets entries of one former alone: the order stays.
template <typename Entry> bool MatchTable<Entry>::resize(unsigned bits, unsigned place) noexcept
{
    std::unique_ptr<MatchList<Entry>[]> chains(new (std::nothrow) MatchList<Entry>[std::size_t{1} << bits]);
    if (!chains)
        return false;
    const std::size_t former_count = chains_ ? std::size_t{1} << bits_ : 0;
    chains_.swap(chains);
    bits_ = bits;
    most_ = std::size_t{2} << bits;
    for (std::size_t i = 0; i < former_count; ++i) {
        for (Entry *entry = chains[i].first; entry != nullptr;) {
            Entry *const newer = entry->links[place].newer;
            chain(entry->source, entry->tag).append(*entry, place);
            entry = newer;
        }
    }
    return true;
}

// Empty chains need no clearing. A table that can't become as large as it should makes do with less.
template <typename Entry>
bool MatchTable<Entry>::open(std::uint64_t ignore, bool directed, std::size_t entries) noexcept
{
    cared_ = ~ignore;
    named_ = directed ? ~std::uintptr_t{0} : 0;
    const unsigned bits = std::max(kLeastBits, static_cast<unsigned>(std::bit_width(entries)));
    if (bits > bits_ && !resize(bits, 0) && !chains_ && !resize(kLeastBits, 0))
        return false;
    most_ = std::size_t{2} << bits_;
    return true;
}

template <typename Entry> void MatchTable<Entry>::append(Entry &entry, unsigned place) noexcept
{
    if (++count_ > most_ && !resize(bits_ + 1, place)) [[unlikely]]
        most_ *= 2; // it is not tried again with every entry
    chain(entry.source, entry.tag).append(entry, place);
}

template <typename Entry> void MatchTable<Entry>::remove(Entry &entry, unsigned place) noexcept
{
    --count_;
    chain(entry.source, entry.tag).remove(entry, place);
}

template <typename Entry>
Entry *MatchTable<Entry>::find(const void *source, std::uint64_t tag, unsigned place) const noexcept
{
    const auto address = reinterpret_cast<std::uintptr_t>(source);
    for (Entry *entry = chain(source, tag).first; entry != nullptr; entry = entry->links[place].newer) {
        const std::uint64_t other_tag = (entry->tag ^ tag) & cared_;
        const std::uintptr_t other_source = (reinterpret_cast<std::uintptr_t>(entry->source) ^ address) & named_;
        if ((other_tag | other_source) == 0)
            return entry;
    }
    return nullptr;
}

void Matcher::index(Posted &receive) noexcept
{
    if (posted_indexed()) {
        file(receive);
        return;
    }
    posted_.few = 0;
    for (Posted *one = first_posted(); one != nullptr; one = next(*one))
        file(*one);
}

void Matcher::file(Posted &receive) noexcept
{
    receive.table = table_of(receive);
    if (receive.table == kMatchClasses)
        others_.append(receive, kPostedChain);
    else
        posted_tables_[receive.table].append(receive, kPostedChain);
}

// A class that has no receives any more gives its table away. kMatchClasses: there is none left, or no memory. Receives
// that had to go among the others stay there, also when their class gets a table later.
unsigned Matcher::table_of(const Posted &receive) noexcept
{
    const bool directed = receive.source != nullptr;
    unsigned spare = posted_classes_;
    for (unsigned i = 0; i < posted_classes_; ++i) {
        if (posted_tables_[i].is_of(receive.ignore, directed))
            return i;
        if (posted_tables_[i].count() == 0)
            spare = i;
    }
    if (spare == kMatchClasses || !posted_tables_[spare].open(receive.ignore, directed, kMatchFew))
        return kMatchClasses;
    posted_classes_ = std::max(posted_classes_, spare + 1);
    return spare;
}

void Matcher::unindex(Posted &receive) noexcept
{
    if (receive.table == kMatchClasses)
        others_.remove(receive, kPostedChain);
    else
        posted_tables_[receive.table].remove(receive, kPostedChain);
    if (posted_.count == 0) {
        posted_.few = kMatchFew;
        posted_classes_ = 0;
    }
}

Posted *Matcher::look_up_posted(const void *source, std::uint64_t tag) noexcept
{
    Posted *const first = first_posted();
    if (takes(first->source, first->tag, first->ignore, source, tag))
        return first; // as it is where messages come in the order of the receives
    Posted *oldest = nullptr;
    for (unsigned i = 0; i < posted_classes_; ++i) {
        if (posted_tables_[i].count() == 0)
            continue;
        Posted *const found = posted_tables_[i].find(source, tag, kPostedChain);
        if (found != nullptr && (oldest == nullptr || found->number < oldest->number))
            oldest = found;
    }
    for (Posted *one = others_.first; one != nullptr; one = one->links[kPostedChain].newer) {
        if (oldest != nullptr && oldest->number < one->number)
            break;
        if (takes(one->source, one->tag, one->ignore, source, tag))
            return one;
    }
    return oldest;
}

// Which classes there are is not known before somebody asks.
void Matcher::index(Arrival &arrival) noexcept
{
    arrivals_.few = 0;
    for (unsigned i = 0; i < arrival_classes_; ++i)
        arrival_tables_[i].append(arrival, kArrivalChains + i);
}

void Matcher::unindex(Arrival &arrival) noexcept
{
    for (unsigned i = 0; i < arrival_classes_; ++i)
        arrival_tables_[i].remove(arrival, kArrivalChains + i);
    if (arrivals_.count == 0) {
        arrivals_.few = kMatchFew;
        arrival_classes_ = 0;
    }
}

// A class that is asked for the first time gets all that is kept. kMatchClasses: it can't have a table.
unsigned Matcher::table_of_arrivals(std::uint64_t ignore, bool directed) noexcept
{
    for (unsigned i = 0; i < arrival_classes_; ++i)
        if (arrival_tables_[i].is_of(ignore, directed))
            return i;
    const unsigned added = arrival_classes_;
    if (added == kMatchClasses || !arrival_tables_[added].open(ignore, directed, arrivals_.count))
        return kMatchClasses;
    for (Arrival *one = first_arrival(); one != nullptr; one = next(*one))
        arrival_tables_[added].append(*one, kArrivalChains + added);
    return arrival_classes_++;
}

Arrival *Matcher::look_up_arrival(const void *source, std::uint64_t tag, std::uint64_t ignore) noexcept
{
    Arrival *const first = first_arrival();
    if (takes(source, tag, ignore, first->source, first->tag))
        return first; // as it is where receives are posted in the order of the messages
    const unsigned table = table_of_arrivals(ignore, source != nullptr);
    if (table == kMatchClasses)
        return walk_arrivals(source, tag, ignore);
    return arrival_tables_[table].find(source, tag, kArrivalChains + table);
}

} // namespace vma::rdm
