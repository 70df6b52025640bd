// SPDX-License-Identifier: BSD-2-Clause
// One step of a sweep, an operation with one size, as the client tells it to the server; how a side waits for
// completions; and what both tell each other about it. All of it is checked here, from the command line and from the
// wire.
#pragma once

#include "util/vma_lat/measure/protocol.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vma::lat {

enum class Operation : std::uint8_t { kSend, kWrite, kRead, kWriteImm };
enum class Model : std::uint8_t { kPoll, kChannel, kEpoll };

inline constexpr std::uint32_t kMaxConnections = 256; // an operation's immediate data have 8 bits for it
inline constexpr std::uint32_t kMaxWindow = 1024;
inline constexpr std::uint32_t kMaxSingle = 1000000;
inline constexpr std::uint32_t kMaxStreamed = 1000000000;
inline constexpr std::uint64_t kMostSampled = 16000000;   // samples of all connections
inline constexpr std::uint64_t kMostExposed = 1ULL << 30; // bytes: one operation of each connection
inline constexpr std::size_t kStepMemory = 128ULL << 20;  // bytes that the windows of a step may take

// A progress model: how completions are waited for, who reads which queue.
struct Progress {
    Model wait = Model::kPoll;
    bool shared = false; // one completion queue for all connections, not one each
    bool each = false;   // a thread for each connection, not one for all
};

struct Step {
    Operation operation = Operation::kSend;
    Progress progress;
    bool verify = false;
    std::uint32_t size = 1; // bytes
    std::uint32_t connections = 1;
    std::uint32_t window = 64;  // operations under way in the second part
    std::uint32_t warm_up = 0;  // first operations of a connection, one at a time: not sampled
    std::uint32_t single = 0;   // then those that are
    std::uint32_t streamed = 0; // then those of the second part
    std::uint64_t seed = 0;     // of the bytes
    std::string provider;
    std::string domain; // empty: any
};

const char *name_of(Operation operation);
const char *name_of(Model model);
bool operation_from(std::string_view name, Operation &operation);
bool model_from(std::string_view name, Model &model);

// The side that is written to hears of the operation by a completion of its own.
inline bool told(Operation operation)
{
    return operation == Operation::kSend || operation == Operation::kWriteImm;
}

Failure fault_of(const Progress &progress, std::uint32_t connections);
Failure fault_of(const Step &step);

// What one connection's peer may reach, and how much may be under way to it.
struct Region {
    std::uint64_t address = 0;
    std::uint64_t key = 0;
    std::uint32_t slots = 1; // places of one operation each, 1 to kMaxWindow; as many receives are posted
};

// What the answering side saw.
struct Tally {
    std::uint64_t arrived = 0;
    std::uint64_t damaged = 0;
    std::string first; // what was wrong with the first damaged one
};

Bytes encode(const Step &step);
Bytes encode(const std::vector<Region> &regions);
Bytes encode(const Tally &tally);
Failure decode(std::span<const std::byte> bytes, Step &step);
Failure decode(std::span<const std::byte> bytes, std::vector<Region> &regions);
Failure decode(std::span<const std::byte> bytes, Tally &tally);

} // namespace vma::lat
