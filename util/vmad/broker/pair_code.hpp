// SPDX-License-Identifier: BSD-2-Clause
// The BPF program that finds the two ends of TCP connections within this host, whatever network namespaces and address
// translation are in between, and the two maps that it keeps. doc/broker.md says why it is as it is.
#pragma once

#include <cstdint>

#include "ether/xdp/assembler.hpp"

namespace vma::guard {

// By these the other end knows a connection: the numbers of the first byte that each side sends. The other end has the
// same two exchanged. In host byte order.
struct PairNumbers {
    std::uint32_t sent = 0;
    std::uint32_t received = 0;
    bool operator==(const PairNumbers &) const = default;
};

constexpr PairNumbers exchanged(const PairNumbers &numbers)
{
    return {numbers.received, numbers.sent};
}

enum class PairRole : std::uint32_t { kConnector, kAcceptor };

// Maps are arrays, which take no lock: a place may be written by two processors at a time, and be read meanwhile.

// At the lower bits of a socket's cookie, from when its connection is established.
struct EndEntry {
    std::uint64_t cookie = 0;
    PairNumbers numbers;
    std::uint32_t port = 0; // its own, in host byte order
    PairRole role = PairRole::kConnector;
    std::uint64_t sum = 0; // of these three words: they are of one socket

    bool is_sound() const;
    void seal();
};

// At the lower bits of the sum of a connection's two numbers. Says who is in this host, and proves nothing.
struct MeetingEntry {
    PairNumbers connector;  // its numbers
    std::uint64_t ends = 0; // bits, kConnectorHere and kAcceptorHere
};
inline constexpr std::uint64_t kConnectorHere = 1;
inline constexpr std::uint64_t kAcceptorHere = 2;

static_assert(sizeof(EndEntry) == 32 && sizeof(MeetingEntry) == 16);

struct PairMaps {
    int ends;
    int meetings;
    std::uint32_t end_count; // powers of two
    std::uint32_t meeting_count;
};

constexpr std::uint32_t end_place(std::uint64_t cookie, std::uint32_t count)
{
    return static_cast<std::uint32_t>(cookie) & (count - 1);
}
constexpr std::uint32_t meeting_place(const PairNumbers &numbers, std::uint32_t count)
{
    return (numbers.sent + numbers.received) & (count - 1);
}

// BPF_PROG_TYPE_SOCK_OPS.
void write_pair_code(ether::Assembler &code, const PairMaps &maps);

} // namespace vma::guard
