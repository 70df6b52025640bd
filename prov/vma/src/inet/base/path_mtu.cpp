// SPDX-License-Identifier: BSD-2-Clause
// The table of path MTUs: sets of a few entries, found by a hash of the peer's address.
#include "prov/vma/src/inet/base/path_mtu.hpp"

#include <algorithm>
#include <bit>

#include "prov/vma/src/inet/base/hash.hpp"

namespace vma::inet {

PathMtus::PathMtus(std::uint32_t peers, std::uint64_t key)
    : sets_(std::bit_ceil(std::max(peers, kWays)) / kWays), key_(key), table_(std::make_unique<Set[]>(sets_))
{
}

std::uint32_t PathMtus::get(const IpAddress &peer, std::uint32_t link, Nanos now) const
{
    const Entry *const entry = find(peer);
    return entry && entry->expires > now ? std::min(entry->mtu, link) : link;
}

bool PathMtus::lower(const IpAddress &peer, std::uint32_t mtu, Nanos now)
{
    Entry *entry = find(peer);
    if (entry && entry->expires > now && entry->mtu <= mtu)
        return false;
    if (!entry) {
        Set &set = set_of(peer);
        entry = &*std::min_element(set.begin(), set.end(),
                                   [](const Entry &a, const Entry &b) { return a.expires < b.expires; });
    }
    *entry = {peer, mtu, now + kLifetime};
    return true;
}

void PathMtus::forget(const IpAddress &peer)
{
    if (Entry *const entry = find(peer))
        entry->expires = 0;
}

void PathMtus::clear()
{
    std::fill_n(table_.get(), sets_, Set{});
}

PathMtus::Set &PathMtus::set_of(const IpAddress &peer) const
{
    return table_[address_hash(peer, key_) >> 32 & (sets_ - 1)];
}

PathMtus::Entry *PathMtus::find(const IpAddress &peer) const
{
    for (Entry &entry : set_of(peer))
        if (entry.expires && entry.peer == peer)
            return &entry;
    return nullptr;
}

} // namespace vma::inet
