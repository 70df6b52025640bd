// SPDX-License-Identifier: BSD-2-Clause
// The two programs that `vma demo` starts: one message at a time over TCP within the host, and how long its round trip
// takes. They know nothing of the library that they may run with.
#pragma once

#include <cstdint>

namespace vma::command {

inline constexpr char kServerRole[] = "--server"; // behind "demo" on the command line, with what follows
inline constexpr char kClientRole[] = "--client";

// Prints the port that it listens at, echoes for one client until that one ends. Whether it waits by asking again and
// again is `spins`.
int serve_demo(bool spins, std::size_t size);

// Begins to measure with the first byte of its input; until then its messages go to and fro. Prints "COUNT P50 P99 NS"
// (nanoseconds), then waits for the end of its input, its connection open.
int ask_demo(std::uint16_t port, bool spins, std::size_t size, unsigned milliseconds);

} // namespace vma::command
