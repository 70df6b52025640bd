// SPDX-License-Identifier: BSD-2-Clause
// The views of libvma's vma_stats, character for character, and JSON. They print to stdout.
#pragma once

#include <string>
#include <vector>

#include "compat/src/stats/text.hpp"
#include "util/vma_stats/options.hpp"
#include "util/vma_stats/snapshot.hpp"

namespace vma_stats {

// What is to be shown of a process: its totals since --zero, or what was added in an interval.
struct Shown {
    const Snapshot *now;
    const Snapshot *before; // nullptr: totals
    const Options *options;
};

// Below a report of views 1, 2 and 4.
inline constexpr const char *kCycleRule =
    "-------------------------------------------------------------------------------\n";

struct ShownMux {
    std::string name; // "select", "poll", "epoll[17]"
    vma::stats::MuxCounters counters;
    std::uint32_t thread;
    std::uint32_t polling;
};

// Sockets by their descriptors, and multiplexers that did something.
std::vector<vma::stats::SocketView> sockets_of(const Shown &shown);
std::vector<ShownMux> muxes_of(const Shown &shown);

void print_lines(const Shown &shown, unsigned cycle); // views 1 and 2
void print_full(const Shown &shown);                  // view 3
void print_groups(const Shown &shown);                // view 4
void print_net_title();                               // view 5
void print_net(const Snapshot &s, const Options &options);
void print_json(const Shown &shown, bool alive);

} // namespace vma_stats
