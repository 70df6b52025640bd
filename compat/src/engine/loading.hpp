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

// Any thread: who would want a part tries again when that is over.
bool is_loading();

struct Load {
    void (*run)();
    const char *what_is_lost;
    std::atomic<std::uint32_t> state{0}; // loading.cpp
    pthread_t thread = {};               // who takes the word below joins it
    std::atomic<bool> to_join{false};
};

struct Loading {
    Load by_part[2]; // atomic
    // Set once, by the thread that loads it.
    fi_provider *provider = nullptr;
    char gro_streams[16] = {}; // the provider keeps the address
};
extern constinit Loading g_loading;

// Before a fork: what is half loaded is in the child for ever. Waits, but not for long.
void wait_for_loads();
void loading_after_fork_in_child(); // a load that was not over has failed

} // namespace vma::sock
