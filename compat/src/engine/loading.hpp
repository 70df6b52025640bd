// SPDX-License-Identifier: BSD-2-Clause
// When the provider is loaded, and rdma-core for streams to other hosts: once each, when a socket first wants it.
// dlopen() waits for whoever is in one, and for constructors of the libraries that it opens. Such a constructor may
// close a socket, which takes our locks, or talk to the very thread that wants the library. So a thread that does
// nothing else loads it, with no lock of ours held, and opens what is opened once a process; who wants it goes on by
// the kernel meanwhile, or waits, but not for long.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

struct fi_provider;

namespace vma::sock {

enum class Part : std::uint8_t { kProvider, kRdma }; // the second needs the first

// Any thread, with any locks. kNotYet: or it is being loaded; it is wanted from now on. kLost: the process was copied
// in the middle of it.
enum class Loaded : std::uint8_t { kNotYet, kTried, kLost };
Loaded loaded(Part part);

// By who has come to kNotYet, when the offload lock is given back; a lock of one socket may be held. True: a part was
// loaded just now, or found not to be there: he may try again. Some loads where nobody wants anything. Keeps errno.
enum class Patience : std::uint8_t { kWaits, kGoesOn };
bool load_what_is_wanted(Patience patience);

// Who asks for latency waits, as his first message within the host is to be accelerated.
Patience patience_asked_for();

// Any thread: who would want this part tries again when that is over.
bool is_loading(Part part);

// Any thread: it is there, or is known not to be.
bool is_loaded(Part part);

// is_loading() of the provider. Who waits has done so, but once at most for a load that takes long.
bool is_loading_still(Patience patience);

struct Load {
    void (*run)();
    const char *what_is_lost;
    std::atomic<std::uint32_t> state{0}; // loading.cpp
    pthread_t thread = {};               // who takes the word below joins it
    std::atomic<bool> to_join{false};
    std::atomic<bool> is_slow{false}; // somebody has waited in vain
};

// Loading takes some milliseconds. On a machine that is busy the first connections may be accelerated a little later.
#if defined(__SANITIZE_ADDRESS__) // whose allocator keeps the locks of the loading thread in the child of a fork
inline constexpr std::int64_t kPatienceNs = 60'000'000'000;
#else
inline constexpr std::int64_t kPatienceNs = 500'000'000;
#endif

struct Loading {
    Load by_part[2];                        // atomic
    std::atomic<std::uint32_t> threads{0};  // how many are at it
    std::atomic<bool> ends{false};          // so does the process
    std::int64_t patience_ns = kPatienceNs; // of who waits
    // Set once, by the thread that loads it.
    fi_provider *provider = nullptr;
    char gro_streams[16] = {}; // the provider keeps the address
};
extern constinit Loading g_loading;

// Before a fork: what is half loaded is in the child for ever. Waits, but not for long; not the thread that loads.
void wait_for_loads();
// When the process ends: the same, and nothing is opened behind it.
void end_loads();
bool process_is_ending(); // a load that takes long may still be under way

// The thread that loads has numbers of descriptors for moments, the lowest that are free, as the linker and all
// libraries open files. A program of one thread counts on its own: on the next one that it is given, on those that it
// has dup2() choose, on closing all that it does not know. So who is about to be given a number, or to close one, waits
// as before a fork, but once at most for a load that takes long. So does who starts a program, which would inherit what
// is half open, or changes the environment, which those libraries read. (Not: who gets a number by recvmsg(), by a
// system call of his own, or within libc.)
inline bool is_any_loading()
{
    return g_loading.threads.load(std::memory_order_acquire) != 0;
}
void wait_once_for_loads(); // keeps errno; a handler of a signal may

void loading_after_fork_in_child(); // a load that was not over has failed

} // namespace vma::sock
