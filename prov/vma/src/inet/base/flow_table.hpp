// SPDX-License-Identifier: BSD-2-Clause
// Finds a number by a flow: open addressing over 32-bit hashes, allocated once. The keys stay with their owners, who
// compare.
#pragma once

#include <bit>
#include <memory>

#include "prov/vma/src/core/siphash.hpp"
#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

using core::HashKey;
using core::SecretHash;
using core::TableHash;

inline std::uint64_t words(const IpAddress &address, std::size_t i)
{
    std::uint64_t v;
    memcpy(&v, &address.bytes[8 * i], sizeof v);
    return v;
}

inline std::uint32_t hash_of(const HashKey &key, const IpAddress &address, std::uint64_t with = 0)
{
    TableHash hash(key);
    hash.add(words(address, 0));
    hash.add(words(address, 1));
    return static_cast<std::uint32_t>(hash.finish(with, 7));
}

template <typename Hash> std::uint64_t hash_flow(const HashKey &key, const Flow &flow, std::uint64_t with = 0)
{
    Hash hash(key);
    if (flow.remote.address.is_v4()) { // both are, and what makes them so tells nothing
        std::uint64_t both;
        memcpy(&both, flow.local.address.v4_bytes(), 4);
        memcpy(reinterpret_cast<std::uint8_t *>(&both) + 4, flow.remote.address.v4_bytes(), 4);
        hash.add(both);
    } else {
        hash.add(words(flow.local.address, 0));
        hash.add(words(flow.local.address, 1));
        hash.add(words(flow.remote.address, 0));
        hash.add(words(flow.remote.address, 1));
    }
    hash.add(std::uint64_t{flow.local.port} << 16 | flow.remote.port | with << 32);
    return hash.finish();
}

class FlowTable
{
public:
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};

    explicit FlowTable(std::uint32_t most) // entries; the table is at most half full
        : mask_(std::bit_ceil(std::uint64_t{most} * 2) - 1), slots_(std::make_unique_for_overwrite<Slot[]>(mask_ + 1))
    {
        for (std::size_t i = 0; i <= mask_; ++i)
            slots_[i].value = kNone;
    }

    // The value for which `is_it(value)` is true; kNone.
    template <typename IsIt> std::uint32_t find(std::uint32_t hash, IsIt is_it) const
    {
        for (std::size_t i = hash & mask_; slots_[i].value != kNone; i = (i + 1) & mask_)
            if (slots_[i].hash == hash && is_it(slots_[i].value))
                return slots_[i].value;
        return kNone;
    }

    void insert(std::uint32_t hash, std::uint32_t value)
    {
        std::size_t i = hash & mask_;
        while (slots_[i].value != kNone)
            i = (i + 1) & mask_;
        slots_[i] = {hash, value};
    }

    void erase(std::uint32_t hash, std::uint32_t value)
    {
        std::size_t hole = hash & mask_;
        while (slots_[hole].value != value)
            hole = (hole + 1) & mask_;
        for (std::size_t i = (hole + 1) & mask_; slots_[i].value != kNone; i = (i + 1) & mask_) {
            if (((i - slots_[i].hash) & mask_) < ((i - hole) & mask_))
                continue; // its home lies behind the hole
            slots_[hole] = slots_[i];
            hole = i;
        }
        slots_[hole].value = kNone;
    }

    void replace(std::uint32_t hash, std::uint32_t value, std::uint32_t with)
    {
        std::size_t i = hash & mask_;
        while (slots_[i].value != value)
            i = (i + 1) & mask_;
        slots_[i].value = with;
    }

private:
    struct Slot {
        std::uint32_t hash;
        std::uint32_t value;
    };

    const std::size_t mask_;
    std::unique_ptr<Slot[]> slots_;
};

} // namespace vma::inet
