// SPDX-License-Identifier: BSD-2-Clause
// What is kept of the configuration besides the parameters.
#pragma once

#include <limits.h>
#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/config/log_callback.hpp"

namespace vma::config {

// Where the log goes. The atomic ones may change at any time, the others when the parameters are read.
struct Log {
    std::atomic<int> file{-1};
    std::atomic<bool> stderr_usable{true};
    std::atomic<LogCallback> callback{nullptr};
    std::atomic<void (*)(int)> level_changed{nullptr};
    const char *name = nullptr; // with its %d
    int details = 0;
    bool colors = false;
    bool bare = false; // no system call but write()
    timespec start = {};
};

struct ConfigState {
    int log_level;                      // log.hpp; atomic, written while parameters are read, and for vma_stats
    std::atomic<bool> loaded{false};    // params.cpp: set once, by the first who asks for parameters
    bool refused = false;               // privileged.hpp: set once, before the first parameter is read
    std::atomic<std::uint32_t> said{0}; // once.cpp: a bit each
    Log log;
};
extern constinit ConfigState g_config;

inline constexpr std::size_t kMostText = 65536; // of the file; a line behind it is not seen

// Zero at first, and in most programs always.
struct Texts {
    // Written once, before the first parameter is read (privileged.cpp).
    char granted[2048];
    char text[kMostText];
    char provider[PATH_MAX]; // locate.cpp: written by who loads it
    char log[PATH_MAX];      // log.cpp: as it is opened, by the only thread
};
extern constinit Texts g_texts;

} // namespace vma::config
