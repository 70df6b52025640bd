// SPDX-License-Identifier: BSD-2-Clause
// What all of the library reads of the process on its way. Each word is written rarely, so that they may share a line.
#pragma once

#include <stdlib.h>

#include <atomic>
#include <cstdint>

#include "compat/src/base/memory.hpp"

namespace vma::mux {

// `until`, ns of CLOCK_MONOTONIC: until then waits of this process sleep at once. Then one of them looks again.
// kNoTurns: for ever, and no wait makes a system call to let others run (a filter refuses it).
inline constexpr std::int64_t kNoTurns = INT64_MAX;

struct Oversubscription {
    std::atomic<std::int64_t> until{0};
    // An Ethernet port is open: the kernel's threads that bring its frames need such turns, so who runs then is whom we
    // wait for.
    std::atomic<bool> turns_are_for_ports{false};
    // A device beside shared memory is open, or was: who has asked for one wants it polled.
    std::atomic<bool> devices_are_polled{false};
};

} // namespace vma::mux

namespace vma::memory {

struct Chosen {
    std::atomic<Allocate> allocate{&::malloc};
    std::atomic<Free> free{&::free};
};

} // namespace vma::memory

namespace vma::sock {

// What is known of the process's io_uring(7) rings.
struct Uring {
    std::atomic<bool> in_use{false};
    std::atomic<bool> returned{false};         // all sockets, since one is in use
    std::atomic<std::uint32_t> unproven{0};    // table/read_urings.hpp
    std::atomic<std::uint32_t> first_looks{0}; // before there is a socket that could be accelerated
    std::atomic<std::uint32_t> offload_looks{0};
    std::atomic<std::uint32_t> begun{0}; // set-ups and ends of those that are read; table/uring.hpp
    std::atomic<std::uint32_t> ended{0};
    std::atomic<std::uint32_t> unclear_looks{0}; // one after the other
};

struct HelperRest {
    std::atomic<bool> on{false}; // it sleeps for longer than a turn
    std::atomic<int> told{-1};   // the eventfd that ends it
};

// All atomic; there is no lock.
struct ProcessWords {
    std::atomic<bool> sandboxed{false};   // base/sandboxed.hpp; set once, by engine/sandbox.cpp
    std::atomic<std::uint32_t> noted{63}; // stats/count.hpp's: which packets are looked at; 0 while they are captured
    std::atomic<std::uint32_t> pool_size{0}; // table/fd_table.cpp's: sockets that there is memory for
    Uring uring;                             // table/uring.hpp
    HelperRest rest;                         // base/helper_wake.hpp; engine/helper_rest.cpp's
    mux::Oversubscription oversubscription;  // base/oversubscription.hpp
    memory::Chosen allocator;                // base/memory.cpp's; set once, before anything is allocated by it
};
[[gnu::visibility("hidden")]] extern constinit ProcessWords g_process; // read without a look for where it is

} // namespace vma::sock
