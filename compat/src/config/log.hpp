// SPDX-License-Identifier: BSD-2-Clause
// The preload library's log: levels of the VMA manual, one write(2) a line, never stdio. Thread- and fork-safe.
#pragma once

#include "compat/src/config/state.hpp"

namespace vma::config {

enum class Level : int {
    kNone = -1,
    kPanic = 0,
    kError = 1,
    kWarn = 2,
    kInfo = 3,
    kDetails = 4,
    kDebug = 5,
    kFunc = 6,
    kFuncAll = 7
};

inline bool log_enabled(Level level)
{
    return static_cast<int>(level) <= __atomic_load_n(&g_config.log_level, __ATOMIC_RELAXED);
}

// Keeps errno. Longer lines than some 1000 characters are cut.
void log_line(Level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Nothing is logged after it; and no system call but write(2) is made for it.
void log_last_line(Level level, const char *text);

void set_log_level(int level);     // when vma_stats asks: kNone to kFuncAll, beyond is as these
void set_log_details(int details); // 0..3

// Who has more to do at some levels than to log: told the level at once, and whenever it changes. There is one of them.
void observe_log_level(void (*changed)(int level));

struct Params;
void open_log(const Params &params); // from here on by the parameters; before, warnings go to stderr
void close_log();                    // back to stderr
void reopen_log_in_child();          // after fork: a file named by %d is another one now

// The program closed descriptor 2, so that the number may become a file of the program's that we must not write to; or
// it put something there on purpose.
void stderr_closed();
void stderr_replaced();

} // namespace vma::config

#define VMA_LOG(level, ...)                                                                                            \
    do {                                                                                                               \
        if (::vma::config::log_enabled(::vma::config::Level::level)) [[unlikely]]                                      \
            ::vma::config::log_line(::vma::config::Level::level, __VA_ARGS__);                                         \
    } while (false)
