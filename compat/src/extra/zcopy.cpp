// SPDX-License-Identifier: BSD-2-Clause
// recvfrom_zcopy() and free_packets(): what has arrived stays where it is, and the program gets its address. What the kernel brought is
// copied to the program's buffer as by recvfrom().
#include <algorithm>
#include <iterator>

#include "compat/src/extra/calls.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/extra/packets.hpp"
#include "compat/src/extra/receive.hpp"
#include "compat/src/libc/real.hpp"

namespace vma::extra {

namespace {

constexpr int kOwnFlags = MSG_VMA_ZCOPY | MSG_VMA_ZCOPY_FORCE;
constexpr int kCopies = MSG_PEEK | MSG_OOB | MSG_ERRQUEUE | MSG_TRUNC; // what with these is asked for is no packet
constexpr std::size_t kPerPacket = sizeof(vma_packet_t) + sizeof(iovec);

// Writes them down in the program's buffer. How many bytes they are.
int give_out(sock::Socket &s, Arrival &arrival, void *buffer)
{
    auto *at = static_cast<char *>(buffer) + sizeof(vma_packets_t);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < arrival.count; ++i) {
        const Packet &packet = hold(s, arrival.loans[i]);
        const struct {
            void *id;
            std::size_t parts;
            iovec part;
        } head = {packet.packet_id(), 1, {packet.bytes(), packet.size()}};
        static_assert(sizeof head == kPerPacket);
        __builtin_memcpy(at, &head, sizeof head);
        at += sizeof head;
        bytes += head.part.iov_len;
    }
    __builtin_memcpy(buffer, &arrival.count, sizeof arrival.count);
    return static_cast<int>(bytes);
}

} // namespace

int recvfrom_zcopy(int fd, void *buffer, size_t length, int *flags, sockaddr *from, socklen_t *from_length)
{
    if (flags == nullptr)
        return fail(EINVAL);
    const bool force = (*flags & MSG_VMA_ZCOPY_FORCE) != 0;
    const int wanted = *flags & ~kOwnFlags;
    sock::Socket *const s = sock::lookup(fd);
    *flags = wanted;
    if (s == nullptr)
        return static_cast<int>(libc::real.recvfrom(fd, buffer, length, wanted, from, from_length));
    if (buffer == nullptr)
        return fail(EFAULT);
    if ((wanted & kCopies) != 0)
        return static_cast<int>(sock::receive_from(*s, fd, buffer, length, wanted, from, from_length));
    if (length < sizeof(vma_packets_t) + kPerPacket)
        return fail(ENOBUFS);
    if (!has_room_for_packets(*s))
        return force ? fail(ENOBUFS)
                     : static_cast<int>(sock::receive_from(*s, fd, buffer, length, wanted, from, from_length));
    iovec part = {buffer, length};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_name = from_length != nullptr ? from : nullptr;
    message.msg_namelen = message.msg_name != nullptr ? *from_length : 0;
    Arrival arrival;
    arrival.most = std::min(std::size(arrival.loans), (length - sizeof(vma_packets_t)) / kPerPacket);
    const ssize_t n = receive(*s, fd, message, wanted, force, arrival);
    if (n < 0)
        return -1;
    if (message.msg_name != nullptr)
        *from_length = message.msg_namelen;
    if (arrival.count == 0)
        return static_cast<int>(n);
    *flags |= MSG_VMA_ZCOPY;
    return give_out(*s, arrival, buffer);
}

int free_packets(int fd, vma_packet_t *packets, size_t count)
{
    constexpr std::size_t kMostParts = 1024;
    sock::Socket *const s = sock::lookup(fd);
    if (s == nullptr || (packets == nullptr && count != 0))
        return fail(EINVAL);
    const char *at = reinterpret_cast<const char *>(packets);
    for (; count != 0; --count) {
        struct {
            void *id;
            std::size_t parts;
        } head;
        static_assert(sizeof head == sizeof(vma_packet_t));
        __builtin_memcpy(&head, at, sizeof head);
        Packet *const packet = find_packet(head.id);
        if (packet == nullptr || !is_of(*packet, *s))
            return fail(ENOENT);
        drop(*packet);
        if (count != 1 && head.parts > kMostParts)
            return fail(EINVAL);
        at += sizeof head + head.parts * sizeof(iovec);
    }
    return 0;
}

} // namespace vma::extra
