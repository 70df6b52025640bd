// SPDX-License-Identifier: BSD-2-Clause
// Memberships as chains of records: sockets have few of them, so a chain is searched from its start.
#include "prov/vma/src/inet/udp/groups.hpp"

#include <cerrno>

namespace vma::inet {

UdpGroups::UdpGroups(std::uint32_t records) : records_(std::make_unique<Record[]>(records + 1))
{
    for (Chain record = records; record; --record) {
        records_[record].next = free_;
        free_ = record;
    }
}

int UdpGroups::change(Chain &chain, GroupChange change, const IpAddress &group, const IpAddress &source)
{
    if (!group.is_multicast())
        return -EINVAL;
    const bool any = find(chain, Kind::kAny, group, {}) != 0;
    const bool member = any || ask(chain, group, {}) != GroupAnswer::kNotMember;
    switch (change) {
    case GroupChange::kJoin:
        return member ? -EADDRINUSE : add(chain, Kind::kAny, group, {});
    case GroupChange::kLeave:
        return member ? leave(chain, group) : -EADDRNOTAVAIL;
    case GroupChange::kAddSource:
        return any ? -EINVAL : add(chain, Kind::kOnly, group, source);
    case GroupChange::kDropSource:
        return any || !member ? -EINVAL : drop(chain, Kind::kOnly, group, source);
    case GroupChange::kBlockSource:
        return any ? add(chain, Kind::kNot, group, source) : -EINVAL;
    case GroupChange::kUnblockSource:
        return any ? drop(chain, Kind::kNot, group, source) : -EINVAL;
    }
    return -EINVAL;
}

GroupAnswer UdpGroups::ask(Chain chain, const IpAddress &group, const IpAddress &source) const
{
    GroupAnswer answer = GroupAnswer::kNotMember;
    for (; chain; chain = records_[chain].next) {
        const Record &record = records_[chain];
        if (record.group != group)
            continue;
        const bool named = record.kind != Kind::kAny && record.source == source;
        if (named)
            return record.kind == Kind::kOnly ? GroupAnswer::kWanted : GroupAnswer::kUnwanted;
        if (record.kind == Kind::kAny)
            answer = GroupAnswer::kWanted;
        else if (answer == GroupAnswer::kNotMember)
            answer = GroupAnswer::kUnwanted;
    }
    return answer;
}

void UdpGroups::leave_all(Chain &chain)
{
    while (chain)
        release(chain);
}

UdpGroups::Chain UdpGroups::find(Chain chain, Kind kind, const IpAddress &group, const IpAddress &source) const
{
    while (chain &&
           !(records_[chain].kind == kind && records_[chain].group == group && records_[chain].source == source))
        chain = records_[chain].next;
    return chain;
}

int UdpGroups::add(Chain &chain, Kind kind, const IpAddress &group, const IpAddress &source)
{
    if (find(chain, kind, group, source))
        return -EADDRNOTAVAIL;
    if (!free_)
        return -ENOBUFS;
    const Chain record = free_;
    free_ = records_[record].next;
    records_[record] = {group, source, kind, chain};
    chain = record;
    return 0;
}

int UdpGroups::drop(Chain &chain, Kind kind, const IpAddress &group, const IpAddress &source)
{
    const Chain found = find(chain, kind, group, source);
    if (!found)
        return -EADDRNOTAVAIL;
    Chain *from = &chain;
    while (*from != found)
        from = &records_[*from].next;
    release(*from);
    return 0;
}

int UdpGroups::leave(Chain &chain, const IpAddress &group)
{
    for (Chain *from = &chain; *from;) {
        if (records_[*from].group == group)
            release(*from);
        else
            from = &records_[*from].next;
    }
    return 0;
}

void UdpGroups::release(Chain &from)
{
    const Chain record = from;
    from = records_[record].next;
    records_[record].next = free_;
    free_ = record;
}

} // namespace vma::inet
