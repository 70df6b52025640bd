// SPDX-License-Identifier: BSD-2-Clause
// What is made of the counters: differences, and the block of text that says all of a socket (view 3 of vma_stats,
// VMA_STATS_FILE, the log). Pure functions of copies: the library and vma_stats share them. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compat/src/stats/layout.hpp"

namespace vma::stats {

// Text that is cut where the room ends.
class Text
{
public:
    void add(const char *format, ...) __attribute__((format(printf, 2, 3)));
    const char *c_str() const { return bytes_; }
    std::size_t size() const { return used_; }
    void clear() { bytes_[used_ = 0] = '\0'; }

private:
    std::size_t used_ = 0;
    char bytes_[4096] = {};
};

struct SocketView {
    const Facts *facts;
    Counters counters;            // since the beginning, since --zero, or of an interval
    std::uint64_t queued_packets; // not read yet
    std::uint64_t queued_bytes;
    std::uint64_t paced_bytes; // of those that were sent
    const char *per;           // behind rates: "" or "/s"
};

// `now` less `then`; what is not counted but measured (most, thread) as it is now. Never below 0, whatever the file
// says.
Counters since(const Counters &now, const Counters &then);
MuxCounters since(const MuxCounters &now, const MuxCounters &then);

// Adds what is counted to `sum`, which has one writer; what is measured (most, thread, waiting, zcopy) is left as it
// is.
void accumulate(Counters &sum, const Counters &more);
void accumulate(MuxCounters &sum, const MuxCounters &more);

SocketView view_of(const Slot &slot); // all since --zero
// Of what was sent in `since`, what was sent under SO_MAX_PACING_RATE.
std::uint64_t paced_bytes(const Slot &slot, const Counters &since);

bool has_traffic(const Counters &c);

double percent(std::uint64_t part, std::uint64_t other); // of the sum; 0 of nothing

inline constexpr std::size_t kAddressText = 64;
// "10.0.0.1", "[fe80::1]"; with a port ":80" or ":*" behind it.
const char *print_address(const std::uint8_t (&address)[16], char (&out)[kAddressText]);
const char *print_endpoint(const std::uint8_t (&address)[16], std::uint16_t port, char (&out)[kAddressText]);

bool is_offloaded(const Facts &facts);
const char *name_of(Way way);
// Into `reason`, of a socket that is the kernel's and may be accelerated yet: why it is not so far, if none was given.
void explain_kernel(Slot &slot, std::uint32_t lift_after);

const char *name_of_tcp_state(std::uint8_t state); // "" where it is not known

// The block of view 3, without the line above it. `out` is added to.
void describe(const SocketView &view, Text &out);

} // namespace vma::stats
