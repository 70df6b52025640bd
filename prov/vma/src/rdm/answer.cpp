// SPDX-License-Identifier: BSD-2-Clause
// What a reliable-datagram endpoint answers its peers' operations: in the ring, where it has room, else as soon as it
// has.
#include "rdm/endpoint.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <rdma/fi_errno.h>

#include "rdm/record.hpp"

namespace vma::rdm {

using local::Bell;

// Without an allocation where the ring has room.
void RdmEndpoint::answer_with(const Whom &whom, std::uint32_t id, int error, const std::byte *bytes,
                              std::size_t length) noexcept
{
    Peer &peer = whom.peer;
    const Packet packet{PacketOp::answer, 0, static_cast<std::uint16_t>(error), id, 0, 0};
    if (peer.greeted && !peer.has_work() && peer.leads_to(whom.identity)) [[likely]] {
        if (std::byte *const place = peer.claim(sizeof packet + length)) [[likely]] {
            Bell bell;
            RecordWriter record(place);
            record.put(&packet, sizeof packet);
            if (length != 0)
                record.put(bytes, length);
            publish(peer, sizeof packet + length, false, 0, bell);
            return;
        }
    }
    Reply said;
    said.packet = packet;
    if (length != 0) {
        said.bytes.reset(static_cast<std::byte *>(std::malloc(length)));
        if (said.bytes) {
            std::memcpy(said.bytes.get(), bytes, length);
            said.length = length;
        } else {
            said.packet.error = FI_ENOMEM;
        }
    }
    reply(whom, std::move(said));
}

// Written at once where the ring has room, else when it has. What is for a predecessor of who reads it goes nowhere:
// that one is gone, and its numbers mean something else to the other.
void RdmEndpoint::reply(const Whom &whom, Reply &&said) noexcept
{
    Peer &peer = whom.peer;
    Bell bell;
    look_after(peer);
    const bool first = peer.replies.empty();
    if (first && is_nobody(peer, bell))
        return; // there is nobody to be told
    if (peer.greeted && !peer.leads_to(whom.identity))
        return;
    said.to = whom.identity;
    if (peer.greeted && first && write_reply(peer, said, bell))
        return;
    peer.replies.push_back(std::move(said));
    make_busy(peer);
}

// False: there is no room, or more of it is to come.
bool RdmEndpoint::write_reply(Peer &peer, Reply &said, Bell &bell) noexcept
{
    if (said.streams)
        return write_read_bytes(peer, said, bell);
    std::byte *const place = peer.claim(sizeof(Packet) + said.length);
    if (place == nullptr)
        return false;
    RecordWriter record(place);
    record.put(&said.packet, sizeof(Packet));
    if (said.length != 0)
        record.put(said.bytes.get(), said.length);
    publish(peer, sizeof(Packet) + said.length, false, 0, bell);
    return true;
}

// What a peer reads and can't be written into its memory: piece by piece, each with the registration looked up again,
// as it may be closed meanwhile.
bool RdmEndpoint::write_read_bytes(Peer &peer, Reply &said, Bell &bell) noexcept
{
    std::uint64_t total = 0;
    for (std::uint64_t i = 0; i < said.source.count; ++i)
        total += said.source.targets[i].length;
    for (;;) {
        const std::uint64_t part = std::min<std::uint64_t>(total - said.packet.size, kEager);
        std::byte *const place = peer.claim(sizeof(Packet) + part);
        if (place == nullptr)
            return false;
        const TargetList targets = part_of(said.source, said.packet.size, part);
        const bool last = said.packet.size + part == total;
        std::byte *at = place + sizeof(Packet);
        int error = 0;
        for (std::uint64_t i = 0; i < targets.count && error == 0; ++i) {
            error = mrs_->read(targets.targets[i].key, targets.targets[i].address, at, targets.targets[i].length);
            at += targets.targets[i].length;
        }
        Packet packet = said.packet;
        packet.flags = last || error != 0 ? 0 : kMore;
        packet.error = static_cast<std::uint16_t>(error);
        std::memcpy(place, &packet, sizeof packet);
        publish(peer, sizeof(Packet) + part, false, 0, bell); // what was claimed is published, whatever it is worth
        said.packet.size += part;
        if (last || error != 0) {
            if (error == 0)
                count_access(said.source, FI_REMOTE_READ);
            return true;
        }
    }
}

} // namespace vma::rdm
