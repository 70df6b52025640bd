// SPDX-License-Identifier: BSD-2-Clause
// The word that all processes of a user share, bumped with each offer: who waits for an offer looks at the directory only
// when it has changed.
#pragma once

#include <atomic>
#include <cstdint>

namespace vma::sock {

// Maps the word of this directory, and makes it if nobody has. nullptr: it can't be (said in the log).
std::atomic<std::uint32_t> *map_generation(const char *directory);

} // namespace vma::sock
