// SPDX-License-Identifier: BSD-2-Clause
// recvfrom_zcopy() and free_packets(): what has arrived stays where it is, and the program gets its address. What the
// kernel brought is copied to the program's buffer as by recvfrom().
#include <algorithm>
#include <iterator>

#include "compat/src/extra/calls.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/extra/packets.hpp"
#include "compat/src/extra/receive.hpp"
#include "compat/src/extra/state.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/real.hpp"

namespace vma::extra {

namespace {

constexpr int kOwnFlags = MSG_VMA_ZCOPY | MSG_VMA_ZCOPY_FORCE;
constexpr int kCopies = MSG_PEEK | MSG_OOB | MSG_ERRQUEUE | MSG_TRUNC; // what with these is asked for is no packet
constexpr std::size_t kPerPacket = sizeof(vma_packet_t) + sizeof(iovec);
constexpr std::size_t kMostWritten = sizeof(vma_packets_t) + std::size(Arrival().loans) * kPerPacket;

// Writes the n-th packet down in the program's buffer, without what is read of it. The length of the rest.
std::size_t give_out(const Packet &packet, void *buffer, std::size_t n, std::size_t read = 0)
{
    const struct {
        void *id;
        std::size_t parts;
        iovec part;
    } head = {packet.packet_id(), 1, {static_cast<char *>(packet.bytes()) + read, packet.size() - read}};
    static_assert(sizeof head == kPerPacket);
    __builtin_memcpy(static_cast<char *>(buffer) + sizeof(vma_packets_t) + n * kPerPacket, &head, sizeof head);
    return head.part.iov_len;
}

void set_count(void *buffer, std::size_t count)
{
    __builtin_memcpy(buffer, &count, sizeof count);
}

int receive_datagram(sock::Socket &s, State &state, int fd, msghdr &message, int flags, bool force, bool &lent)
{
    std::atomic<bool> &lends = sock::udp::state_of(s).lends;
    if (!lends.load(std::memory_order_relaxed))
        lends.store(true, std::memory_order_relaxed);
    sock::Loan loan;
    const ssize_t n = sock::udp::receive_lent(s, fd, &message, flags, force, loan, nullptr);
    lent = loan.lender != nullptr;
    if (!lent)
        return static_cast<int>(n);
    void *const buffer = message.msg_iov->iov_base;
    give_out(hold(s, state, loan), buffer, 0);
    set_count(buffer, 1);
    return static_cast<int>(n);
}

int receive_stream(sock::Socket &s, State &state, int fd, msghdr &message, int flags, bool force, bool &lent)
{
    Arrival arrival;
    arrival.most = std::min(std::size(arrival.loans), (message.msg_iov->iov_len - sizeof(vma_packets_t)) / kPerPacket);
    const ssize_t n = receive(s, fd, message, flags, force, arrival);
    lent = n >= 0 && arrival.count != 0;
    if (!lent)
        return static_cast<int>(n);
    void *const buffer = message.msg_iov->iov_base;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < arrival.count; ++i)
        bytes += give_out(hold(s, state, arrival.loans[i]), buffer, i);
    set_count(buffer, arrival.count);
    return static_cast<int>(bytes);
}

// Of a socket with a receive callback: it is asked here as by other receives, and what it has let through comes first.
int receive_screened(sock::Socket &s, int fd, msghdr &message, int flags, bool force, bool &lent)
{
    Packet *packet = nullptr;
    const ssize_t n = receive_packet_screened(s, fd, message, flags, force, packet);
    lent = packet != nullptr;
    if (!lent)
        return static_cast<int>(n);
    void *const buffer = message.msg_iov->iov_base;
    give_out(*packet, buffer, 0, packet->offset);
    set_count(buffer, 1);
    return static_cast<int>(n);
}

} // namespace

int recvfrom_zcopy(int fd, void *buffer, size_t length, int *flags, sockaddr *from, socklen_t *from_length)
{
    if (flags == nullptr)
        return fail(EINVAL);
    if (!libc::can_update(flags, sizeof *flags))
        return fail(EFAULT);
    const bool force = (*flags & MSG_VMA_ZCOPY_FORCE) != 0;
    const int wanted = *flags & ~kOwnFlags;
    sock::Socket *const s = sock::lookup(fd);
    *flags = wanted;
    if (s == nullptr)
        return static_cast<int>(libc::real.recvfrom(fd, buffer, length, wanted, from, from_length));
    if (buffer == nullptr)
        return fail(EFAULT);
    if (from != nullptr && from_length != nullptr && !libc::can_update(from_length, sizeof *from_length))
        return fail(EFAULT);
    if ((wanted & kCopies) != 0)
        return static_cast<int>(sock::receive_from(*s, fd, buffer, length, wanted, from, from_length));
    if (length < sizeof(vma_packets_t) + kPerPacket)
        return fail(ENOBUFS);
    if (!libc::can_update(buffer, std::min(length, kMostWritten)))
        return fail(EFAULT);
    State *const state = room_for_packets(*s);
    if (state == nullptr) [[unlikely]]
        return force ? fail(ENOBUFS)
                     : static_cast<int>(sock::receive_from(*s, fd, buffer, length, wanted, from, from_length));
    iovec part = {buffer, length};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_name = from_length != nullptr ? from : nullptr;
    message.msg_namelen = message.msg_name != nullptr ? *from_length : 0;
    bool lent = false;
    const bool screened =
        sock::is_screened(*s) && (has_ready(*s) || state->callback.load(std::memory_order_acquire) != nullptr);
    const int n = screened                      ? receive_screened(*s, fd, message, wanted, force, lent)
                  : sock::protocol(*s).messages ? receive_datagram(*s, *state, fd, message, wanted, force, lent)
                                                : receive_stream(*s, *state, fd, message, wanted, force, lent);
    if (n >= 0 && from != nullptr && from_length != nullptr)
        *from_length = message.msg_namelen;
    if (lent)
        *flags |= MSG_VMA_ZCOPY;
    return n;
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
        if (!drop(head.id, *s))
            return fail(ENOENT);
        if (count != 1 && head.parts > kMostParts)
            return fail(EINVAL);
        at += sizeof head + head.parts * sizeof(iovec);
    }
    return 0;
}

} // namespace vma::extra
