// SPDX-License-Identifier: BSD-2-Clause
// The capture: what accelerated sockets send and receive is written to a ring (capture_layout.hpp) while vma_dump
// listens. Nobody waits for the listener: what finds no room is counted and lost. Where the hot paths come here is
// sent() and received() of count.hpp, in a branch that they have anyway (doc/capture.md).
#pragma once

#include <netinet/in.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/stats/capture_layout.hpp"

namespace vma::stats {

// The addresses of one datagram, where they are not those of its socket's record.
struct CaptureEnds {
    in6_addr local = {};
    in6_addr peer = {};
    std::uint16_t local_port = 0; // host byte order
    std::uint16_t peer_port = 0;
};

// A ring that is mapped. What is written once stands before `header`, what each record changes after it.
struct CaptureRing {
    std::uint32_t size = 0; // bytes
    std::uint32_t most = 0;
    std::atomic<CaptureHeader *> header{nullptr};      // nullptr: nobody listens
    alignas(64) std::atomic<std::uint64_t> claimed{0}; // bytes
    std::atomic<std::uint64_t> taken{0};               // of these by the listener, when somebody last looked
    alignas(64) std::atomic<std::uint32_t> users{0};   // threads that may write to it
};

// Its lock, for its beginning and end; `ring` is read without.
struct Capture {
    CaptureRing ring;
    alignas(64) sock::Mutex lock;
    std::atomic<bool> open{false}; // there is a ring, or what is left of one
    CaptureHeader *mapped = nullptr;
    std::uint32_t mapped_size = 0;
    int fd = -1;                  // of the memory file; the listener has a lock on it
    std::int64_t deadline_ns = 0; // CLOCK_MONOTONIC: somebody listens by then
    std::uint32_t answered = 0;   // number of the last wish
};
[[gnu::visibility("hidden")]] extern constinit Capture g_capture;

inline bool is_captured()
{
    return g_capture.ring.header.load(std::memory_order_relaxed) != nullptr;
}

// `length` bytes of the program's, from `skip` on in `parts`; of these the first `there` can be read. Before they are
// counted in `slot`. The lock that this direction is counted under. errno stays.
[[gnu::cold]] void capture_sent(const Slot &slot, const iovec *parts, std::size_t skip, std::size_t length,
                                std::size_t there, const CaptureEnds *ends = nullptr);
[[gnu::cold]] void capture_received(const Slot &slot, const iovec *parts, std::size_t skip, std::size_t length,
                                    std::size_t there, const CaptureEnds *ends = nullptr);

// In one piece.
[[gnu::cold]] void capture_sent(const Slot &slot, const void *bytes, std::size_t length);
[[gnu::cold]] void capture_received(const Slot &slot, const void *bytes, std::size_t length);

// ---- its life (capture_life.cpp) ------------------------------------------------------------------------------------

void answer_capture(CaptureWords &words); // a wish of vma_dump's, if it is a new one; keeps errno
void look_after_listener();               // whether it is there still

// By the helper thread.
inline void look_after_capture()
{
    if (g_capture.open.load(std::memory_order_relaxed)) [[unlikely]]
        look_after_listener();
}

void end_capture();                 // whoever listens; no call is made for it any more
void capture_after_fork_in_child(); // it is its parent's

} // namespace vma::stats
