// SPDX-License-Identifier: BSD-2-Clause
// The words that all processes of a user share. Two are bumped with each offer and each name: who waits for one looks
// at the directory only when its word has changed. The others are hints for offload/first_byte.cpp.
#pragma once

#include <atomic>
#include <cstdint>

namespace vma::sock {

struct Generations {
    alignas(64) std::atomic<std::uint32_t> offers{0};    // of connections
    alignas(64) std::atomic<std::uint32_t> datagrams{0}; // names and wishes of UDP sockets
    // When a process that would have its connection accelerated before the first byte began the latest connect() of
    // all. CLOCK_MONOTONIC in ns; 0: none has.
    alignas(64) std::atomic<std::int64_t> connecting_ns{0};
    std::atomic<std::uint32_t> listening[65536 / 32]{}; // a bit for each port whose acceptor leaves offers in accept()
    std::atomic<std::uint32_t> speaking[65536 / 32]{};  // likewise, and it sends before it receives
};

// Maps those of this directory, and makes them if nobody has. nullptr: it can't be (said in the log). `id`: a number
// that all who see the same words have, and nobody else; processes of several IPC namespaces may have a directory in
// common and not these.
Generations *map_generations(const char *directory, std::uint32_t &id);

} // namespace vma::sock
