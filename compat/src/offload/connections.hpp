// SPDX-License-Identifier: BSD-2-Clause
// What is kept of the process's connections as a whole. Private to compat/src/offload.
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <cstdint>

#include "compat/src/base/bounds.hpp"

namespace vma::sock {

class Stream;

// A host that did not answer: not asked again before.
struct Refusal {
    in6_addr host = {};
    std::int64_t until_ns = 0;
    std::int64_t pause_ns = 0; // 0: free
};

// All of it is zero at the start, so that no page of it is read from the library's file.
struct Connections {
    // Offload lock; whether any is open is read without.
    StreamRoom room;
    Refusal refusals[64];
    Stream *attempts = nullptr; // to reach the peer's host
    std::atomic<bool> any_open{false};
    std::uint32_t questions = 0; // that vmad was asked
};
extern constinit Connections g_connections;

} // namespace vma::sock
