// SPDX-License-Identifier: BSD-2-Clause
// What a process tells the guardian, vmad, of its connections: one message of this size each, over a SOCK_SEQPACKET
// socket of one host, so in the host's own byte order. The guardian answers nothing.
#pragma once

#include <cstdint>

#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::ether {

inline constexpr char kGuardianPath[] = "/run/vma/vmad.sock"; // the default of FI_VMA_GUARDIAN and of vmad
inline constexpr std::uint32_t kGuardianMagic = 0x564d4101;   // goes up with each change of the message
inline constexpr unsigned kMostGuarded = 65536;               // connections of one socket

enum class GuardianCall : std::uint8_t {
    kHello = 1,  // first and once, with a raw socket for IPv4, for IPv6, or both (SCM_RIGHTS) of the process's network
    kAdd = 2,    // a connection is there; one of the same flow is forgotten
    kRemove = 3, // it is over
    kForget = 4, // all are
};

struct GuardianMessage {
    std::uint32_t magic = kGuardianMagic;
    GuardianCall call{};
    std::uint8_t timestamps = 0; // 1: the connection has them (RFC 7323)
    std::uint16_t local_port = 0;
    std::uint16_t remote_port = 0;
    std::uint16_t reserved = 0;
    inet::IpAddress local;
    inet::IpAddress remote;
    std::uint32_t seq = 0;   // SND.UNA - 1
    std::uint32_t ack = 0;   // RCV.NXT
    std::uint32_t stamp = 0; // of our clock of time stamps, ms, when the message is sent
    std::uint32_t echo = 0;  // TS.Recent
};
static_assert(sizeof(GuardianMessage) == 60); // nothing in it is padding

} // namespace vma::ether
