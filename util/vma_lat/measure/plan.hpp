// SPDX-License-Identifier: BSD-2-Clause
// What one test does, as the client tells it to the server: names, limits, and the rule of what goes with what.
#pragma once

#include "util/vma_lat/measure/text.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vma::lat {

enum class Kind : std::uint8_t { kUdp, kTcp, kFabricMsg, kFabricDgram };
enum class Test : std::uint8_t { kPingPong, kThroughput, kUnderLoad };
enum class Wait : std::uint8_t { kRecvfrom, kSpin, kSelect, kPoll, kEpoll };

inline constexpr std::uint32_t kMinSize = 12; // bytes: the header of a message
inline constexpr std::uint32_t kMaxSize = 16U << 20;
inline constexpr std::uint32_t kMaxDatagram = 65507;
inline constexpr std::uint32_t kMaxSockets = 4096;
inline constexpr std::size_t kMaxName = 64; // characters of a provider's name or a group's address

struct Plan {
    Kind kind = Kind::kUdp;
    Test test = Test::kPingPong;
    Wait wait = Wait::kRecvfrom;
    bool check = false;          // every byte of a message has a known value, and is looked at
    std::uint16_t session = 0;   // tells this test's messages from those of others
    std::uint16_t data_port = 0; // multicast: the first of the ports, one a socket
    std::uint32_t size = 64;     // bytes a message
    std::uint32_t sockets = 1;   // sockets or endpoints, each with a port of its own
    std::string provider;        // libfabric's; empty for sockets
    std::string domain;          // of that provider's; empty for any
    std::string group;           // multicast address; empty for unicast
};

const char *name_of(Kind kind);
const char *name_of(Test test);
const char *name_of(Wait wait);
// The value whose place in `names` is that of the name.
template <typename Names, typename Value> bool find_name(const Names &names, std::string_view name, Value &value)
{
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (name == names[i]) {
            value = static_cast<Value>(i);
            return true;
        }
    }
    return false;
}

bool wait_from(std::string_view name, Wait &wait);
bool test_from(std::string_view name, Test &test);

inline bool fabric(Kind kind)
{
    return kind == Kind::kFabricMsg || kind == Kind::kFabricDgram;
}

inline bool reliable(Kind kind)
{
    return kind == Kind::kTcp || kind == Kind::kFabricMsg;
}

// What is wrong with a plan: from the command line, or from the wire.
Failure fault_of(const Plan &plan);

} // namespace vma::lat
