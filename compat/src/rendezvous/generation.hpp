// SPDX-License-Identifier: BSD-2-Clause
// The words that all processes of a user share, bumped with each offer and each name: who waits for one looks at the
// directory only when its word has changed.
#pragma once

#include <atomic>
#include <cstdint>

namespace vma::sock {

struct Generations {
    alignas(64) std::atomic<std::uint32_t> offers{0};    // of connections
    alignas(64) std::atomic<std::uint32_t> datagrams{0}; // names and wishes of UDP sockets
};

// Maps those of this directory, and makes them if nobody has. nullptr: it can't be (said in the log). `id`: a number
// that all who see the same words have, and nobody else; processes of several IPC namespaces may have a directory in
// common and not these.
Generations *map_generations(const char *directory, std::uint32_t &id);

} // namespace vma::sock
