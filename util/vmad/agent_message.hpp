// SPDX-License-Identifier: BSD-2-Clause
// The messages of VMA's agent protocol: datagrams of a process to the daemon, and the daemon's answers. Packed, in host
// byte order; addresses and ports as on the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace vma::guard {

inline constexpr std::uint8_t kAgentVersion = 3;
inline constexpr std::uint8_t kAgentAck = 0x80; // in the code of an answer

enum class AgentCode : std::uint8_t { kInit = 1, kState = 2, kExit = 3, kFlow = 4 };

struct [[gnu::packed]] AgentHeader {
    std::uint8_t code;
    std::uint8_t version;
    std::uint8_t status; // of a flow: 1 asks for an answer; of an answer: 0, or 1: it was not done
    std::uint8_t reserved;
    std::int32_t pid;
};
static_assert(sizeof(AgentHeader) == 8);

struct [[gnu::packed]] AgentInit {
    AgentHeader header;
    std::uint32_t library; // major << 12 | minor << 8 | release << 4 | revision
};
static_assert(sizeof(AgentInit) == 12);

struct [[gnu::packed]] AgentState {
    AgentHeader header;
    std::uint32_t fid; // of the socket, in its process
    std::uint32_t local_address;
    std::uint32_t remote_address;
    std::uint16_t local_port;
    std::uint16_t remote_port;
    std::uint8_t type;  // SOCK_STREAM, SOCK_DGRAM
    std::uint8_t state; // of TCP, as lwIP numbers them
};
static_assert(sizeof(AgentState) == 26);

struct [[gnu::packed]] AgentFlow {
    AgentHeader header;
    std::uint8_t type;   // 0 egress, 1 UDP by five values, 2 by three, 3 TCP by five, 4 by three
    std::uint8_t action; // 1 add, 2 delete
    std::uint32_t interface;
    std::uint32_t tap;
    std::uint32_t remote_address;
    std::uint16_t remote_port;
    std::uint32_t local_address;
    std::uint16_t local_port;
};
static_assert(sizeof(AgentFlow) == 30);

inline constexpr std::uint8_t kTcpClosed = 0;
inline constexpr std::uint8_t kTcpEstablished = 4;
inline constexpr std::uint8_t kTcpLast = 10; // TIME-WAIT

union AgentMessage {
    AgentHeader header;
    AgentInit init;
    AgentState state;
    AgentFlow flow;
};

// Reads a datagram of `length` bytes, of which those that fit are in `bytes`. nullptr: it is one, and all of its fields
// are in their ranges; else what is wrong. Versions are the caller's to judge, and who it is from.
const char *parse_agent(std::span<const std::byte> bytes, std::size_t length, AgentMessage &message);

} // namespace vma::guard
