// SPDX-License-Identifier: BSD-2-Clause
// What the engine keeps of a thread. Its own: no other thread sees it.
#pragma once

#include <cstdint>

namespace vma::sock {

namespace udp {
struct Sink;
}

inline constexpr int kNoRegistration = -1;

struct EngineThread {
    // fork_handlers.cpp
    int fork_by = kNoRegistration; // which registration the fork of this thread goes by
    unsigned fork_count = 0;       // of the provider's handlers, when it began
    bool fork_allocator = false;   // the allocator's are kept, likewise
    bool loading = false;          // this thread loads the provider, or what it needs
    bool is_loader = false;        // loading.cpp: and does nothing else
    bool attached = false;         // ring_choice.cpp: to a processor
    udp::Sink *sink = nullptr;     // udp/arrive.cpp: takes what the poll that is going on finds
    std::int64_t drained_ns = 0;   // tcp/receive.cpp: when it last looked for more than there was
};
[[gnu::tls_model("initial-exec")]] extern thread_local constinit EngineThread t_engine;

} // namespace vma::sock
