// SPDX-License-Identifier: BSD-2-Clause
// Sockets by port, and among those of one port by Linux's rule: connected before bound to the address before bound to
// any.
#include "prov/vma/src/inet/udp/table.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>

#include "prov/vma/src/core/probes.hpp"
#include "prov/vma/src/inet/base/hash.hpp"

namespace vma::inet {
namespace {

constexpr std::uint32_t kMaxBuckets = 65536; // ports

// What a socket that is bound to `local` may get and send.
bool covers(const IpAddress &local, bool v6_only, const IpAddress &address)
{
    if (!local.is_any())
        return local == address;
    return local.is_v4() == address.is_v4() || (address.is_v4() && !v6_only);
}

bool same_family(const IpAddress &local, bool v6_only, const IpAddress &address)
{
    return local.is_v4() == address.is_v4() || (local.is_any() && address.is_v4() && !v6_only);
}

// Of two sockets of one port: can a datagram be for both?
bool overlap(const IpAddress &a, bool a_v6_only, const IpAddress &b, bool b_v6_only)
{
    return covers(a, a_v6_only, b) || covers(b, b_v6_only, a);
}

} // namespace

UdpTable::UdpTable(const Limits &limits, BlockPool &pool)
    : bucket_count_(std::min(std::bit_ceil(limits.sockets), kMaxBuckets)), pool_(pool), groups_(limits.group_records),
      sockets_(std::make_unique<Socket[]>(limits.sockets)), buckets_(std::make_unique<UdpSocketId[]>(bucket_count_))
{
    assert(pool.block_size() >= DatagramQueue::kMinBlock);
    std::fill_n(buckets_.get(), bucket_count_, kNoUdpSocket);
    for (UdpSocketId id = limits.sockets; id--;) {
        sockets_[id].next = free_;
        free_ = id;
    }
}

UdpTable::~UdpTable()
{
    for (std::uint32_t i = 0; i < bucket_count_; ++i)
        while (buckets_[i] != kNoUdpSocket)
            close(buckets_[i]);
}

UdpSocketId UdpTable::open(const UdpOptions &options)
{
    const UdpSocketId id = free_;
    if (id == kNoUdpSocket)
        return id;
    free_ = socket(id).next;
    const bool listed = socket(id).listed; // of the socket that had this id before
    const UdpSocketId next_event = socket(id).next_event;
    socket(id) = Socket{};
    socket(id).open = true;
    socket(id).options = options;
    socket(id).listed = listed;
    socket(id).next_event = next_event;
    return id;
}

void UdpTable::close(UdpSocketId id)
{
    Socket &closed = socket(id);
    if (closed.flow.local.port) {
        UdpSocketId *from = &bucket(closed.flow.local.port);
        while (*from != id)
            from = &socket(*from).next;
        *from = closed.next;
    }
    closed.received.clear(pool_);
    closed.errors.clear(pool_);
    groups_.leave_all(closed.groups);
    closed.open = false;
    closed.error = 0;
    closed.next = free_;
    free_ = id;
}

int UdpTable::bind(UdpSocketId id, const Endpoint &local)
{
    Socket &one = socket(id);
    if (!local.port || one.flow.local.port)
        return -EINVAL;
    for (UdpSocketId other = bucket(local.port); other != kNoUdpSocket; other = socket(other).next) {
        const Socket &there = socket(other);
        if (there.flow.local.port != local.port ||
            !overlap(there.flow.local.address, there.options.v6_only, local.address, one.options.v6_only))
            continue;
        const bool shared = (there.options.reuse_address && one.options.reuse_address) ||
                            (there.options.reuse_port && one.options.reuse_port);
        if (!shared)
            return -EADDRINUSE;
    }
    one.flow.local = local;
    one.bound = local.address;
    one.next = bucket(local.port);
    bucket(local.port) = id;
    return 0;
}

int UdpTable::connect(UdpSocketId id, const IpAddress &source, const Endpoint &remote)
{
    Socket &one = socket(id);
    if (!one.flow.local.port || !remote.port || remote.address.is_any())
        return -EINVAL;
    if (!same_family(one.bound, one.options.v6_only, remote.address))
        return -EAFNOSUPPORT;
    if (one.bound.is_any() && (source.is_any() || source.is_v4() != remote.address.is_v4()))
        return -EINVAL;
    one.flow.local.address = one.bound.is_any() ? source : one.bound;
    one.flow.remote = remote;
    return 0;
}

void UdpTable::disconnect(UdpSocketId id)
{
    socket(id).flow.remote = {};
    socket(id).flow.local.address = socket(id).bound;
}

int UdpTable::change_group(UdpSocketId id, GroupChange change, const IpAddress &group, const IpAddress &source)
{
    return groups_.change(socket(id).groups, change, group, source);
}

// 0: it isn't the socket's. A dual socket is behind one of IPv4 alone, as in Linux.
int UdpTable::score(const Socket &one, const Flow &flow) const
{
    const Endpoint &local = one.flow.local;
    if (local.port != flow.local.port || one.options.groups_only ||
        !covers(local.address, one.options.v6_only, flow.local.address))
        return 0;
    if (one.flow.remote.port)
        return one.flow.remote == flow.remote ? 8 : 0;
    return 1 + (local.address.is_any() ? 0 : 4) + (local.address.is_v4() == flow.local.address.is_v4() ? 2 : 0);
}

UdpSocketId UdpTable::find(const Flow &flow) const
{
    UdpSocketId found = kNoUdpSocket;
    int best = 0;
    unsigned ties = 0;
    for (UdpSocketId id = bucket(flow.local.port); id != kNoUdpSocket; id = socket(id).next) {
        const int points = score(socket(id), flow);
        ties = points > best ? 1 : ties + (points == best);
        if (points > best) { // of equals, the last that was bound
            best = points;
            found = id;
        }
    }
    return found != kNoUdpSocket && ties > 1 && socket(found).options.reuse_port ? pick(flow, best, ties) : found;
}

// SO_REUSEPORT: the peers are spread over the sockets, each with all of its datagrams at one.
UdpSocketId UdpTable::pick(const Flow &flow, int best, unsigned ties) const
{
    unsigned chosen = static_cast<unsigned>((address_hash(flow.remote.address, flow.remote.port) >> 32) * ties >> 32);
    UdpSocketId id = bucket(flow.local.port);
    for (;; id = socket(id).next)
        if (score(socket(id), flow) == best && chosen-- == 0)
            return id;
}

UdpDelivered UdpTable::deliver(const Packet &packet, bool broadcast)
{
    UdpDatagram datagram;
    const UdpParsed parsed = parse_udp(packet, datagram);
    ++counters_.parsed[static_cast<std::size_t>(parsed)];
    if (parsed != UdpParsed::kDatagram)
        return UdpDelivered::kInvalid;
    const Flow flow{{packet.target, datagram.target_port}, {packet.source, datagram.source_port}};
    unsigned wanted = 0;
    unsigned got = 0;
    if (broadcast || packet.target.is_multicast()) {
        for (UdpSocketId id = bucket(datagram.target_port); id != kNoUdpSocket; id = socket(id).next)
            if (wants_group(socket(id), flow)) {
                ++wanted;
                got += enqueue(id, packet, datagram);
            }
    } else if (const UdpSocketId id = find(flow); id != kNoUdpSocket) {
        wanted = 1;
        got = enqueue(id, packet, datagram);
    }
    if (wanted)
        return got ? UdpDelivered::kDelivered : UdpDelivered::kDropped;
    ++counters_.no_socket;
    return UdpDelivered::kNoSocket;
}

// A socket that is connected gets from its peer alone, and one that is bound to an address, what goes to that.
bool UdpTable::wants_group(const Socket &one, const Flow &flow) const
{
    const Endpoint &local = one.flow.local;
    const Endpoint &remote = one.flow.remote;
    if (local.port != flow.local.port || !covers(one.bound, one.options.v6_only, flow.local.address))
        return false;
    if (remote.port && remote != flow.remote)
        return false;
    if (!flow.local.address.is_multicast())
        return !one.options.groups_only;
    const GroupAnswer answer = groups_.ask(one.groups, flow.local.address, flow.remote.address);
    return answer == GroupAnswer::kWanted || (answer == GroupAnswer::kNotMember && one.options.multicast_all);
}

bool UdpTable::enqueue(UdpSocketId id, const Packet &packet, const UdpDatagram &datagram)
{
    Socket &one = socket(id);
    DatagramInfo info;
    info.source = {packet.source, datagram.source_port};
    info.target = packet.target;
    info.vlan = packet.vlan;
    info.traffic_class = packet.traffic_class;
    info.hop_limit = packet.hop_limit;
    info.arrived = packet.info.arrived;
    info.hardware = packet.info.hardware;
    info.dropped = one.dropped;
    if (one.options.taker != nullptr) {
        info.length = static_cast<std::uint32_t>(datagram.data.size());
        one.options.taker->take(info, datagram.data);
        ++counters_.delivered;
        return true;
    }
    const bool full = std::uint64_t{one.received.blocks()} << pool_.shift() >= one.options.receive_bytes;
    if (full || !one.received.push(pool_, info, datagram.data)) {
        ++(full ? counters_.dropped_full : counters_.dropped_pool);
        ++one.dropped;
        probe::drop(datagram.target_port, datagram.data.size(),
                    full ? probe::Cause::kQueueFull : probe::Cause::kNoMemory);
        return false;
    }
    ++counters_.delivered;
    add_event(id);
    return true;
}

bool UdpTable::tell_error(const IcmpError &error)
{
    const UdpSocketId id = find(error.flow);
    const bool connected = id != kNoUdpSocket && socket(id).flow.remote.port;
    const bool at_once = connected && (error.hard || error.error == EMSGSIZE);
    if (id == kNoUdpSocket || (!at_once && !socket(id).options.receive_errors)) {
        ++counters_.errors_unheard;
        return false;
    }
    Socket &one = socket(id);
    if (one.options.receive_errors) {
        DatagramInfo info;
        info.source = error.flow.remote;
        info.target = error.reporter;
        info.error = error.error;
        info.type = error.type;
        info.code = error.code;
        info.mtu = error.mtu;
        const bool full = std::uint64_t{one.errors.blocks()} << pool_.shift() >= one.options.receive_bytes;
        if (full || !one.errors.push(pool_, info, error.quoted.subspan(kUdpHeader)))
            ++counters_.errors_dropped;
    }
    one.error = error.error;
    ++counters_.errors_told;
    add_event(id);
    return true;
}

UdpTable::Received UdpTable::receive(UdpSocketId id, std::span<const std::span<std::uint8_t>> room, Read read)
{
    Socket &one = socket(id);
    Received received;
    if (one.error) {
        received.error = -take_error(id);
    } else if (one.received.empty()) {
        received.error = -EAGAIN;
    } else {
        received.copied = one.received.read(pool_, room, received.info);
        if (read == Read::kTake)
            one.received.pop(pool_);
    }
    return received;
}

UdpTable::Received UdpTable::receive_error(UdpSocketId id, std::span<const std::span<std::uint8_t>> room)
{
    Socket &one = socket(id);
    Received received;
    if (one.errors.empty()) {
        received.error = -EAGAIN;
        return received;
    }
    received.copied = one.errors.read(pool_, room, received.info);
    one.errors.pop(pool_);
    if (one.errors.empty())
        one.error = 0; // as Linux: who has read why needs no further telling
    return received;
}

int UdpTable::take_error(UdpSocketId id)
{
    const int error = socket(id).error;
    socket(id).error = 0;
    return error;
}

std::uint32_t UdpTable::first_length(UdpSocketId id) const
{
    return socket(id).received.empty() ? 0 : socket(id).received.first_length(pool_);
}

void UdpTable::add_event(UdpSocketId id)
{
    Socket &one = socket(id);
    if (one.listed)
        return;
    one.listed = true;
    one.next_event = kNoUdpSocket;
    if (first_event_ == kNoUdpSocket)
        first_event_ = id;
    else
        socket(last_event_).next_event = id;
    last_event_ = id;
}

UdpSocketId UdpTable::next_event()
{
    while (first_event_ != kNoUdpSocket) {
        const UdpSocketId id = first_event_;
        first_event_ = socket(id).next_event;
        socket(id).listed = false;
        if (socket(id).open && (readable(id) || has_errors(id)))
            return id;
    }
    return kNoUdpSocket;
}

} // namespace vma::inet
