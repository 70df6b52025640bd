// SPDX-License-Identifier: BSD-2-Clause
// Deadlines of many owners, by number: a heap that is allocated once. Exact to the nanosecond, so that a replay and a
// test see each timer when its RFC says.
#pragma once

#include <memory>

#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

class Timers
{
public:
    explicit Timers(std::uint32_t owners)
        : heap_(std::make_unique_for_overwrite<Entry[]>(owners)), place_(std::make_unique<std::uint32_t[]>(owners))
    {
    }

    Nanos next() const { return size_ != 0 ? heap_[0].at : kNever; }
    std::uint32_t owner() const { return heap_[0].owner; } // of next()

    // kNever takes the owner off.
    void set(std::uint32_t owner, Nanos at)
    {
        const std::uint32_t place = place_[owner]; // one more than the index, 0: not on the heap
        if (at == kNever) {
            if (place != 0)
                remove(place - 1);
        } else if (place == 0) {
            heap_[size_] = {at, owner};
            up(size_++);
        } else {
            const bool sooner = at < heap_[place - 1].at;
            heap_[place - 1].at = at;
            if (sooner)
                up(place - 1);
            else
                down(place - 1);
        }
    }

    Nanos of(std::uint32_t owner) const { return place_[owner] != 0 ? heap_[place_[owner] - 1].at : kNever; }

private:
    static constexpr std::uint32_t kWays = 4;

    struct Entry {
        Nanos at;
        std::uint32_t owner;
    };

    // Who is due at the same time goes in the order of their numbers: a replay must not depend on the heap's history.
    static bool sooner(const Entry &a, const Entry &b) { return a.at != b.at ? a.at < b.at : a.owner < b.owner; }

    void put(std::uint32_t place, const Entry &entry)
    {
        heap_[place] = entry;
        place_[entry.owner] = place + 1;
    }
    void up(std::uint32_t place)
    {
        const Entry entry = heap_[place];
        for (; place != 0 && sooner(entry, heap_[(place - 1) / kWays]); place = (place - 1) / kWays)
            put(place, heap_[(place - 1) / kWays]);
        put(place, entry);
    }
    void down(std::uint32_t place)
    {
        const Entry entry = heap_[place];
        for (;;) {
            const std::uint32_t first = place * kWays + 1;
            std::uint32_t least = place;
            for (std::uint32_t i = first; i < first + kWays && i < size_; ++i)
                if (sooner(heap_[i], least == place ? entry : heap_[least]))
                    least = i;
            if (least == place)
                break;
            put(place, heap_[least]);
            place = least;
        }
        put(place, entry);
    }
    void remove(std::uint32_t place)
    {
        place_[heap_[place].owner] = 0;
        const Entry last = heap_[--size_];
        if (place == size_)
            return;
        put(place, last);
        up(place);
        down(place_[last.owner] - 1);
    }

    std::unique_ptr<Entry[]> heap_;
    std::unique_ptr<std::uint32_t[]> place_;
    std::uint32_t size_ = 0;
};

} // namespace vma::inet
