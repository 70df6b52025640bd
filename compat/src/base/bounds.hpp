// SPDX-License-Identifier: BSD-2-Clause
// How many streams of this host a process may have accelerated: what they map and what they may fill has to leave the
// program the better half of what the system allows it. More of them stay on the kernel.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vma::sock {

// What the system allows the process. UINT64_MAX: as much as it likes.
struct ProcessLimits {
    std::uint64_t mappings = UINT64_MAX;      // vm.max_map_count
    std::uint64_t mapped = 0;                 // how many there are without those of streams
    std::uint64_t address_space = UINT64_MAX; // RLIMIT_AS
    std::uint64_t memory = UINT64_MAX;        // of its control groups, or the machine's
};
ProcessLimits read_process_limits(std::uint64_t streams);

// Whose ring has so many bytes.
std::uint64_t most_streams(const ProcessLimits &limits, std::uint64_t ring);

// What was found the last time.
struct StreamRoom {
    std::uint64_t most = 0; // 0: nobody has asked
    std::uint64_t looked_at = 0;
};
// One more, besides `streams` that there are. False: there is no room; the log has said so once. The lock of `room`
// held.
bool room_for_stream(StreamRoom &room, std::uint64_t streams);

// Of a control group's file: a number of bytes. UINT64_MAX: "max", or nothing that can be read.
std::uint64_t parse_limit(const char *text);

} // namespace vma::sock
