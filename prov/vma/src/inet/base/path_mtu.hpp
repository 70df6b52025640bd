// SPDX-License-Identifier: BSD-2-Clause
// Path MTUs by peer, as ICMP errors told them (RFC 1191, RFC 8201), in a table of fixed size. A path that was never
// told of, or not lately, has the MTU of its link.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

class PathMtus
{
public:
    static constexpr Nanos kLifetime = 600 * kSecond; // as Linux; RFC 1191, 6.3 and RFC 8201, 4 say not below 5 minutes

    // `peers`: how many are remembered, rounded up to a power of two, at least 8. `key`: random, so that nobody can
    // choose addresses that push out each other.
    PathMtus(std::uint32_t peers, std::uint64_t key);

    // Bytes with the IP header, at most `link`.
    std::uint32_t get(const IpAddress &peer, std::uint32_t link, Nanos now) const;

    // A path turned out to be no wider than `mtu`, and is thought so for kLifetime; false: that much was known. A full
    // table forgets a path that would have expired the soonest.
    bool lower(const IpAddress &peer, std::uint32_t mtu, Nanos now);

    void forget(const IpAddress &peer); // its route has changed
    void clear();

private:
    static constexpr unsigned kWays = 8;

    struct Entry {
        IpAddress peer;
        std::uint32_t mtu = 0;
        Nanos expires = 0;
    };
    using Set = std::array<Entry, kWays>;

    Set &set_of(const IpAddress &peer) const;
    Entry *find(const IpAddress &peer) const;

    const std::uint32_t sets_; // a power of two
    const std::uint64_t key_;
    std::unique_ptr<Set[]> table_;
};

} // namespace vma::inet
