// SPDX-License-Identifier: BSD-2-Clause
// What a process and vmad's broker say to each other over a SOCK_SEQPACKET socket: doc/broker.md. Host byte order; one
// message a packet. Constants and plain structs alone, as vmad and libvma.so share no more.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vma::broker {

inline constexpr char kPath[] = "/run/vma/broker";
inline constexpr std::uint32_t kMagic = 0x564d4142;
inline constexpr std::uint16_t kVersion = 1;

enum class Kind : std::uint32_t {
    kAsk = 1,    // who is at the other end? With one descriptor: the TCP socket. Answered once
    kCancel = 2, // the question of this id is none any more. Not answered; the answer may be under way
    kAnswer = 3, // vmad's, of the id of the question
};

struct Header {
    std::uint32_t magic;   // kMagic
    std::uint16_t version; // kVersion
    std::uint16_t length;  // of the whole message
    Kind kind;
    std::uint32_t id; // who asks chooses it; one that waits for an answer can't be chosen again
};

// A request is a header alone.
using Request = Header;

enum class Result : std::uint32_t {
    kMet = 0,          // comes with a descriptor: a SOCK_SEQPACKET socket, whose other end the other side has
    kAbsent = 1,       // the other end is in this host, and nobody has asked for it in time. It may be asked again
    kRemote = 2,       // no other end in this host, or the connection is older than vmad, or over
    kRefused = 3,      // by vmad's rules
    kBusy = 4,         // too many wait, of this user or in all; or no descriptors are left
    kNotTcp = 5,       // the descriptor is no TCP socket
    kAgain = 6,        // the same socket was asked for again, which is answered instead
    kOtherVersion = 7, // vmad speaks the version of this message's header
};

enum class Role : std::uint32_t {
    kConnector = 0,
    kAcceptor = 1,
};

// The size of the packet is `header.length`: that of this, without the bytes of `cgroup` that aren't used.
inline constexpr std::size_t kMostCgroup = 255;
struct Answer {
    Header header;
    Result result;
    Role role; // of the socket that was asked for. This and what follows are 0 unless the result is kMet
    // Of the process at the other end, as the kernel says it of its connection to vmad.
    std::uint32_t user;
    std::uint32_t group;
    std::int32_t process; // in vmad's PID namespace, 0: not visible there
    std::uint32_t cgroup_length;
    std::uint64_t network;        // cookies of network namespaces: the other's
    std::uint64_t own_network;    // and this end's
    std::uint64_t pair;           // the same at both ends, and at no others as long as vmad runs
    char cgroup[kMostCgroup + 1]; // the path in the tree of version 2, cut off where it is longer; not ended by a 0
};

inline constexpr std::size_t kAnswerBase = offsetof(Answer, cgroup);
static_assert(sizeof(Header) == 16 && kAnswerBase == 64 && sizeof(Answer) == 320);

} // namespace vma::broker
