// SPDX-License-Identifier: BSD-2-Clause
// Tag matching of a reliable-datagram endpoint: the receives that are posted, and the messages that came before theirs,
// both in order, of which the oldest that fits always wins. It owns neither, and knows of no data, protocol or lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace vma::rdm {

inline constexpr std::size_t kMatchFew = 16; // entries, up to which a list is only walked

// Receives with the same ignore mask that all name a source, or none of them, are a class. So many have tables.
inline constexpr unsigned kMatchClasses = 8;

// Which of an entry's links are for what.
inline constexpr unsigned kInOrder = 0;       // the list of all
inline constexpr unsigned kPostedChain = 1;   // the one chain where a receive stands
inline constexpr unsigned kArrivalChains = 1; // the chain of the first class where a message stands; the others follow

template <typename Entry> struct MatchLinks {
    Entry *older;
    Entry *newer;
};

// A list, or a chain of a hash table. An entry has links for each that it may be in at once, and `place` says which.
template <typename Entry> struct MatchList {
    Entry *first = nullptr;
    Entry *last = nullptr;

    void append(Entry &entry, unsigned place) noexcept
    {
        entry.links[place] = {last, nullptr};
        (last != nullptr ? last->links[place].newer : first) = &entry;
        last = &entry;
    }
    void remove(Entry &entry, unsigned place) noexcept
    {
        const MatchLinks<Entry> links = entry.links[place];
        (links.older != nullptr ? links.older->links[place].newer : first) = links.newer;
        (links.newer != nullptr ? links.newer->links[place].older : last) = links.older;
    }
};

// A posted receive. What is on top stays as it is from Matcher::post() to remove(); the rest is the Matcher's.
struct Posted {
    const void *source = nullptr; // nullptr: any
    std::uint64_t tag = 0;
    std::uint64_t ignore = 0; // the tag's bits that don't matter

    std::uint64_t number;        // in the order of posting: tells which of two chains has the older one
    MatchLinks<Posted> links[2]; // not initialized, as is the rest: nobody reads them outside of the lists
    unsigned table;              // the class's, or kMatchClasses: among the others
};

// A message that nothing had matched. The same holds for its members.
struct Arrival {
    const void *source = nullptr; // never nullptr once it is kept
    std::uint64_t tag = 0;

    MatchLinks<Arrival> links[kArrivalChains + kMatchClasses]; // the ordered list's lie beside what a walk compares
};

// Whether a receive with this source (nullptr: any), tag and ignored bits takes a message `from` somebody, `tagged` so.
inline bool takes(const void *source, std::uint64_t tag, std::uint64_t ignore, const void *from,
                  std::uint64_t tagged) noexcept
{
    return ((tag ^ tagged) & ~ignore) == 0 && (source == nullptr || source == from);
}

// Entries by what the receives of one class look at: the tag without the ignored bits, and the source if they name one.
// Each chain is in the order of the list, so the first that fits is the oldest.
template <typename Entry> class MatchTable
{
public:
    std::size_t count() const noexcept { return count_; }
    bool is_of(std::uint64_t ignore, bool directed) const noexcept
    {
        return cared_ == ~ignore && (named_ != 0) == directed;
    }

    // Makes a table that is empty that of a class, with room for some entries. False: there is no memory.
    bool open(std::uint64_t ignore, bool directed, std::size_t entries) noexcept;
    void append(Entry &entry, unsigned place) noexcept;
    void remove(Entry &entry, unsigned place) noexcept;
    Entry *find(const void *source, std::uint64_t tag, unsigned place) const noexcept;

private:
    MatchList<Entry> &chain(const void *source, std::uint64_t tag) const noexcept;
    bool resize(unsigned bits, unsigned place) noexcept;

    std::uint64_t cared_ = 0;  // the bits of a tag that count
    std::uintptr_t named_ = 0; // the bits of a source that count: all or none
    std::size_t count_ = 0;
    std::size_t most_ = 0; // entries, beyond which it doubles
    unsigned bits_ = 0;    // there are 2^bits_ chains
    std::unique_ptr<MatchList<Entry>[]> chains_;
};

// One endpoint's receives and unexpected messages; those without tags have a Matcher of their own, with tag 0. A short
// list is walked, one that has grown is indexed until it is empty again, and keeps the tables' memory. Where there is
// none for tables, it is walked too. Not thread-safe.
class Matcher
{
public:
    Matcher() noexcept = default;
    Matcher(const Matcher &) = delete;
    Matcher &operator=(const Matcher &) = delete;

    // A receive joins behind all others, and stays the caller's.
    void post(Posted &receive) noexcept
    {
        receive.number = posts_++;
        posted_.list.append(receive, kInOrder);
        if (++posted_.count > posted_.few) [[unlikely]]
            index(receive);
    }
    // Likewise a message that find_posted() has nothing for.
    void keep(Arrival &arrival) noexcept
    {
        arrivals_.list.append(arrival, kInOrder);
        if (++arrivals_.count > arrivals_.few) [[unlikely]]
            index(arrival);
    }

    // The oldest receive that takes such a message, or nullptr; it stays in the list.
    Posted *find_posted(const void *source, std::uint64_t tag) noexcept
    {
        if (posted_indexed()) [[unlikely]]
            return look_up_posted(source, tag);
        for (Posted *one = posted_.list.first; one != nullptr; one = next(*one))
            if (takes(one->source, one->tag, one->ignore, source, tag))
                return one;
        return nullptr;
    }
    // The oldest message that such a receive takes, or nullptr; it stays in the list.
    Arrival *find_arrival(const void *source, std::uint64_t tag, std::uint64_t ignore) noexcept
    {
        if (arrivals_indexed()) [[unlikely]]
            return look_up_arrival(source, tag, ignore);
        return walk_arrivals(source, tag, ignore);
    }

    void remove(Posted &receive) noexcept
    {
        posted_.list.remove(receive, kInOrder);
        --posted_.count;
        if (posted_indexed()) [[unlikely]]
            unindex(receive);
    }
    void remove(Arrival &arrival) noexcept
    {
        arrivals_.list.remove(arrival, kInOrder);
        --arrivals_.count;
        if (arrivals_indexed()) [[unlikely]]
            unindex(arrival);
    }

    // All of them, the oldest first. Who removes one on the way asks for the next before.
    Posted *first_posted() const noexcept { return posted_.list.first; }
    Arrival *first_arrival() const noexcept { return arrivals_.list.first; }
    static Posted *next(const Posted &receive) noexcept { return receive.links[kInOrder].newer; }
    static Arrival *next(const Arrival &arrival) noexcept { return arrival.links[kInOrder].newer; }

    bool any_posted() const noexcept { return posted_.list.first != nullptr; }
    bool any_arrival() const noexcept { return arrivals_.list.first != nullptr; }
    std::size_t posted_count() const noexcept { return posted_.count; }
    std::size_t arrival_count() const noexcept { return arrivals_.count; }
    bool posted_indexed() const noexcept { return posted_.few == 0; }
    bool arrivals_indexed() const noexcept { return arrivals_.few == 0; }

private:
    // What every call looks at is small, and lies together.
    template <typename Entry> struct Ordered {
        MatchList<Entry> list;
        std::size_t count = 0;
        std::size_t few = kMatchFew; // 0: there is an index, so that one comparison tells whether to see to it
    };

    void index(Posted &receive) noexcept;
    void index(Arrival &arrival) noexcept;
    void unindex(Posted &receive) noexcept;
    void unindex(Arrival &arrival) noexcept;
    void file(Posted &receive) noexcept;
    unsigned table_of(const Posted &receive) noexcept;
    unsigned table_of_arrivals(std::uint64_t ignore, bool directed) noexcept;
    Posted *look_up_posted(const void *source, std::uint64_t tag) noexcept;
    Arrival *look_up_arrival(const void *source, std::uint64_t tag, std::uint64_t ignore) noexcept;
    Arrival *walk_arrivals(const void *source, std::uint64_t tag, std::uint64_t ignore) const noexcept
    {
        for (Arrival *one = arrivals_.list.first; one != nullptr; one = next(*one))
            if (takes(source, tag, ignore, one->source, one->tag))
                return one;
        return nullptr;
    }

    Ordered<Posted> posted_;
    Ordered<Arrival> arrivals_;
    std::uint64_t posts_ = 0;

    unsigned posted_classes_ = 0;  // tables that were opened since the index is there
    unsigned arrival_classes_ = 0; // likewise
    MatchList<Posted> others_;     // receives of classes that have no table
    MatchTable<Posted> posted_tables_[kMatchClasses];
    MatchTable<Arrival> arrival_tables_[kMatchClasses]; // every arrival is in all that are open
};

} // namespace vma::rdm
