// SPDX-License-Identifier: BSD-2-Clause
// What is said only once in the life of a process, however often it happens.
#pragma once

#include <cstdint>

namespace vma::config {

enum class Once : std::uint8_t {
    kStatsNotWritten,
    kNoExternalRing,
    kNoModeration,
    kNoKeys,
    kNoDescriptors,
    kNoSocketXtreme,
    kNoRing,
    kPrivileged,
    kTooManyStreams,
    kNoReceivers,
    kNoPeer,
    kNoEndpoint,
    kNoHolders,
};

// True for the first who asks. Any thread.
bool is_first(Once what);

} // namespace vma::config
