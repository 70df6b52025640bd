// SPDX-License-Identifier: BSD-2-Clause
// What the extra API keeps of the process. Private to compat/src/extra.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/base/spin_lock.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/extra/receive.hpp"
#include <mellanox/vma_extra.h>

namespace vma::extra {

struct Packet;

inline constexpr std::size_t kMostThreads = 1024;
inline constexpr int kMostProfiles = 256;
inline constexpr std::size_t kMostHot = 1024;
inline constexpr std::size_t kMostBytes = 65535;   // of a packet: its length has 16 bits
inline constexpr std::uint32_t kIdleMost = 100000; // polls, or looks of a poll, that found nothing

struct ThreadRule {
    pthread_t thread;
    bool offload;
};

// A socket that had something lately.
struct Hot {
    sock::Socket *socket;
    std::uint32_t generation;
    int fd;
    std::uint32_t idle;
    bool by_kernel; // what the kernel has of it is not read to its end
};

// Zero at first: only what is used takes memory.
struct Tables {
    // state_lock(), of more than this; the atomic ones are read without.
    sock::Mutex lock;
    std::atomic<std::size_t> rule_count{0};
    ThreadRule rules[kMostThreads] = {};
    std::atomic<int> profile_count{0};
    vma_ring_type_attr profiles[kMostProfiles] = {}; // that of key n at n - 1
    // Any thread.
    std::atomic<std::uint32_t> callbacks{0}; // that were ever registered
    Packet *spare = nullptr;                 // completions.cpp; the engine's poll lock
    // packets.cpp. Written with its lock held, and the atomic ones read without.
    alignas(64) SpinLock packets_lock;
    std::atomic<Packet *> packets{nullptr};
    Packet *free_packets = nullptr;
    std::atomic<std::uint32_t> used_packets{0}; // of the array, ever
    std::atomic<std::uint32_t> held_packets{0};
    std::atomic<Packet *> returned_packets{nullptr}; // own ones that were given back, through `next`; no lock
    // xtreme_look.cpp: what looks at the sockets keep between them, with their lock held; the count is read without.
    alignas(64) SpinLock look_lock;
    std::atomic<std::uint32_t> hot_count{0};
    std::size_t turn = 0;
    Packet *look_spare = nullptr;
    Hot hot[kMostHot] = {};
    alignas(64) std::uint8_t room[kMostBytes + 1] = {}; // for what the kernel brings
};
extern constinit Tables g_tables;

// Of the one ring and its polls. Threads that poll at once may lose each other's counts.
struct Xtreme {
    alignas(64) std::atomic<std::uint32_t> looks{0}; // since the set was asked
    std::atomic<std::uint32_t> idle{kIdleMost};      // polls, since something was found
    std::atomic<std::uint32_t> polls{0};
    alignas(64) Arrival arrival; // g_tables.look_lock
    std::atomic<int> fd{-1};     // of the ring; written with state_lock() held
};
extern constinit Xtreme g_xtreme;

// What the loader writes to.
struct Api {
    vma_api_t table;   // the program has its address; the mask is atomic
    AcceptCall accept; // set once, when the library is loaded
};
extern constinit Api g_api;

} // namespace vma::extra
