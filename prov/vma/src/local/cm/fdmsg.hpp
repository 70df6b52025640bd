// SPDX-License-Identifier: BSD-2-Clause
// One packet with descriptors over a SOCK_SEQPACKET socket, as datagram endpoints greet each other, and who is at the
// socket's other end. What the packets mean is their users' business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <netinet/in.h>
#include <sys/types.h>

#include "core/fd.hpp"

namespace vma::local {

inline constexpr std::uint32_t kGreetingMagic = 0x564d4435; // "VMD5"
inline constexpr std::size_t kMaxPacketFds = 2;

// From the sender, with the ring's memory.
struct RingGreeting {
    std::uint32_t magic;
    std::uint32_t is_group;    // 1: the ring is for datagrams to a group
    std::uint32_t barriers;    // 1: the sender's process takes part in them (core/barrier.hpp)
    std::uint32_t incarnation; // of the sender (PortName::incarnation()); 0: it doesn't say
    std::uint64_t ring_size;   // bytes, all of the memory
    sockaddr_in6 source;       // the sender's name (an IPv4 one leaves the rest zero)
    sockaddr_in6 destination;  // the receiver's address, or the group's
};

// From the receiver, with doorbell and wake descriptor of its queue.
struct RingAnswer {
    std::uint32_t magic;
    std::uint32_t doorbell_bit;
    std::uint32_t fences; // 1: the receiver executes the sender's too, who may leave them out
};

enum class Packet { whole, nothing, end };

// False where it could not be sent whole, now.
bool send_packet(int socket, const void *data, std::size_t length, std::span<const int> fds) noexcept;
// A packet that is longer, shorter, or has not exactly `fds.size()` descriptors is an end too.
Packet receive_packet(int socket, void *data, std::size_t length, std::span<core::UniqueFd> fds) noexcept;
// The process at the other end, if it is one of our user; else -1.
pid_t peer_of_our_user(int socket) noexcept;

} // namespace vma::local
