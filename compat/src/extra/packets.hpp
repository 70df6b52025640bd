// SPDX-License-Identifier: BSD-2-Clause
// Packets that the program holds: what its ids and buffers mean. An id is looked for among the packets before it is
// believed; the packets of a socket end with it.
#pragma once

#include <netinet/in.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include <mellanox/vma_extra.h>

#include "compat/src/base/loan.hpp"
#include "compat/src/table/socket.hpp"
#include "compat/src/udp/wire.hpp"

namespace vma::extra {

inline constexpr std::uint32_t kMostPackets = 61440; // of a process

inline constexpr std::size_t kPacketRoom = 192; // bytes that a packet has itself

struct State;

struct alignas(64) Packet {
    static constexpr std::uint32_t kOwn = UINT32_C(1) << 31; // in `refs`: it is one that hold_own() made

    vma_buff_t buffer = {};             // first: SocketXtreme hands out its address
    std::atomic<std::uint32_t> refs{0}; // 0: free
    std::uint32_t generation = 0;       // of the socket
    sock::Socket *socket = nullptr;
    Packet *next = nullptr; // of the socket's, or the next free one
    Packet *prev = nullptr;
    alignas(64) std::uint8_t room[kPacketRoom] = {};
    sock::Loan loan;
    Packet *next_ready = nullptr; // of those that wait to be read, and what is known of it
    std::size_t offset = 0;       // read
    sock::udp::About about = {};

    std::size_t size() const { return loan.length(); }
    void *packet_id() const { return const_cast<Packet *>(this); }
    void *bytes() const { return const_cast<std::uint8_t *>(loan.data()); }
    std::size_t left() const { return size() - offset; } // of one that a callback has let through
};
static_assert(offsetof(Packet, room) == 64); // the bytes stand in the line behind what is written of each packet

// To be asked before something is borrowed, for up to two packets. False: the program holds too many, or there is no
// memory.
bool has_room_for_packets(sock::Socket &s);
bool is_full();                                  // the same without a socket
Packet &hold(sock::Socket &s, sock::Loan &loan); // takes the loan over
// The same in two steps: the state of the socket, or nullptr for false, is what the second one needs.
State *room_for_packets(sock::Socket &s);
Packet &hold(sock::Socket &s, State &state, sock::Loan &loan);
// Some that nobody holds yet, through `next`; nullptr: the program holds too many, or there is no memory. Of these
// hold_own() makes one of what stands in `room`: it is on no list of its socket's, as it keeps nothing of it, and stays
// when that is closed. No lock is taken for it, now or when it is given back.
Packet *reserve_packets(std::uint32_t count);
// The first of `spares`, which it fills if there is none; nullptr as above. Who calls guards them.
inline Packet *take_spare(Packet *&spares)
{
    constexpr std::uint32_t kSpares = 16;
    if (spares == nullptr) [[unlikely]]
        spares = reserve_packets(kSpares);
    return spares != nullptr ? std::exchange(spares, spares->next) : nullptr;
}
inline void hold_own(Packet &packet, sock::Socket &s, std::uint32_t generation, std::size_t length)
{
    packet.buffer = {nullptr, packet.room, static_cast<std::uint16_t>(length)};
    packet.socket = &s;
    packet.generation = generation;
    packet.refs.store(Packet::kOwn | 1, std::memory_order_release);
}
// As receive_screened() of one packet, which stays where it is: `packet` is what is left of it, nullptr where it is in
// the message's parts. `force`: EIO, and nothing is taken, where that would be so.
ssize_t receive_packet_screened(sock::Socket &s, int fd, msghdr &message, int flags, bool force, Packet *&packet);
Packet *find_packet(const void *id); // nullptr: it is none that is held
bool is_of(const Packet &packet, const sock::Socket &s);
// One reference less; those that are left, or -1: it is not held any more.
int drop(Packet &packet);
bool drop(const void *id, const sock::Socket &s); // of this socket; false: it is none of its packets
int add(Packet &packet);                          // one more; how many then, or -1
void drop_all(sock::Socket &s);
void packets_after_fork_in_child(); // none is held there: the memory is the parent's

} // namespace vma::extra
