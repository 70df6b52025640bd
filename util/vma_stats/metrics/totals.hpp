// SPDX-License-Identifier: BSD-2-Clause
// What a process has counted since it began, of sockets that are closed too: numbers that never fall, and that --zero
// doesn't touch. Pure functions of a copy of its file.
#pragma once

#include <array>
#include <cstdint>

#include "compat/src/stats/layout.hpp"
#include "util/vma_stats/snapshot.hpp"

namespace vma_stats {

inline constexpr std::size_t kWays = 5; // vma::stats::Way

// Of the sockets of one protocol.
struct ProtocolTotals {
    vma::stats::Counters counted = {}; // `most_...`, `thread`, `zcopy` and `waiting` are 0
    std::array<std::uint64_t, kWays> open = {};
    std::uint64_t closed = 0;
    std::uint64_t queued_packets = 0; // not read yet
    std::uint64_t queued_bytes = 0;
    std::uint64_t unacknowledged_bytes = 0;
    std::uint64_t lent_buffers = 0;
};

struct MuxTotals {
    vma::stats::MuxCounters counted = {};
    std::uint32_t polling = 0; // per cent, the most of any record
};

struct Totals {
    ProtocolTotals tcp;
    ProtocolTotals udp;
    MuxTotals select;
    MuxTotals poll;
    MuxTotals epoll;
};

Totals totals_of(const Snapshot &s);

} // namespace vma_stats
