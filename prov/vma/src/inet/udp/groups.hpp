// SPDX-License-Identifier: BSD-2-Clause
// Which sockets are members of which multicast groups, and from which sources (RFC 3376, 3). What the network is told
// of it is the kernel's, by a socket of its own.
#pragma once

#include <cstdint>
#include <memory>

#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

// As the socket options of these names; `source` is looked at by the last four only.
enum class GroupChange : std::uint8_t { kJoin, kLeave, kAddSource, kDropSource, kBlockSource, kUnblockSource };

enum class GroupAnswer : std::uint8_t { kNotMember, kWanted, kUnwanted };

class UdpGroups
{
public:
    // `records`: how many memberships, and sources of them, there can be in all.
    explicit UdpGroups(std::uint32_t records);

    // One socket's, 0: none. Records of a socket are a chain that starts here.
    using Chain = std::uint32_t;

    // 0, or the negative errno that Linux gives: -EADDRINUSE (to join: is a member), -EADDRNOTAVAIL (to leave: isn't; a
    // source that is there already, or isn't), -EINVAL (not a group, or sources of no member, or of one that has joined
    // them the other way), -ENOBUFS (no record is left).
    int change(Chain &chain, GroupChange change, const IpAddress &group, const IpAddress &source);

    // Of a datagram to `group` from `source`.
    GroupAnswer ask(Chain chain, const IpAddress &group, const IpAddress &source) const;

    void leave_all(Chain &chain);

private:
    enum class Kind : std::uint8_t { kAny, kOnly, kNot }; // sources: all but those that are kNot; those that are kOnly

    struct Record {
        IpAddress group;
        IpAddress source; // :: for kAny
        Kind kind = Kind::kAny;
        Chain next = 0;
    };

    Chain find(Chain chain, Kind kind, const IpAddress &group, const IpAddress &source) const;
    int add(Chain &chain, Kind kind, const IpAddress &group, const IpAddress &source);
    int drop(Chain &chain, Kind kind, const IpAddress &group, const IpAddress &source);
    int leave(Chain &chain, const IpAddress &group);
    void release(Chain &from); // the record there, which is unlinked

    std::unique_ptr<Record[]> records_; // the first stands for none
    Chain free_ = 0;
};

} // namespace vma::inet
