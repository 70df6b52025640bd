// SPDX-License-Identifier: BSD-2-Clause
// What client and server say to each other over the control connection, as bytes: a header of fixed length, then a body
// of its type. All numbers in network byte order. What comes from the wire is checked here, each length once; no I/O.
//
//   client                         server
//   PLAN                     ->             what to test
//                            <-    READY    where: ports, or the endpoints' addresses    (or REFUSED, with a text)
//   JOIN                     ->             the client's endpoints' addresses; it connects
//                            <-    GO       all are connected                            (or REFUSED)
//   ... messages over the transport under test ...
//   FINISH                   ->             how many were sent, and what the client is
//                            <-    RESULT   what arrived, and by which way
//   PLAN of the next test, or the end of the connection
//
// A step of a sweep has STEP instead of PLAN, and after GO
//   REGIONS                  <->   REGIONS  what each may write to and read from
// and its RESULT has other numbers. Members of a mesh send each other
//   HELLO, REGIONS, GO (what was to come has come), RESULT
#pragma once

#include "util/vma_lat/measure/plan.hpp"
#include "util/vma_lat/measure/way.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vma::lat {

enum class Type : std::uint16_t { kPlan = 1, kReady, kRefused, kJoin, kGo, kFinish, kResult, kStep, kRegions, kHello };

using Bytes = std::vector<std::byte>;

inline constexpr std::size_t kControlHeader = 12;
inline constexpr std::uint32_t kMaxBody = 1U << 20;
inline constexpr std::size_t kMaxAddress = 128; // bytes of an endpoint's address

struct Header {
    Type type = Type::kPlan;
    std::uint32_t length = 0; // of the body
};

// Where one side can be reached: a port a socket, or an address an endpoint.
struct Places {
    std::vector<std::uint16_t> ports;
    std::vector<Bytes> addresses;
};

// What one side counted. Warm-up messages are not in it.
struct Counts {
    std::uint64_t sent = 0;
    std::uint64_t received = 0; // each message once
    std::uint64_t reordered = 0;
    std::uint64_t duplicates = 0;
    std::uint64_t damaged = 0;  // wrong length, or with --check a wrong byte
    std::uint64_t foreign = 0;  // of another session
    std::uint64_t timed = 0;    // messages after the one at first_ns, up to that at last_ns
    std::uint64_t first_ns = 0; // of its own clock
    std::uint64_t last_ns = 0;
};

// What one side says of a test at its end.
struct Report {
    Counts counts;
    Side side;
};

std::array<std::byte, kControlHeader> encode_header(Header header);
Bytes encode(const Plan &plan);
Bytes encode(const Places &places);
Bytes encode(const Report &report);
Bytes encode(const std::string &text);

// Each says what is wrong with the bytes.
Failure decode_header(std::span<const std::byte, kControlHeader> bytes, Header &header);
Failure decode(std::span<const std::byte> bytes, Plan &plan);
Failure decode(std::span<const std::byte> bytes, Places &places);
Failure decode(std::span<const std::byte> bytes, Report &report);
Failure decode(std::span<const std::byte> bytes, std::string &text); // at most 1000 printable characters

} // namespace vma::lat
