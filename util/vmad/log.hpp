// SPDX-License-Identifier: BSD-2-Clause
// What vmad has to say: to the console, or, once it is a daemon, to syslog (LOG_LOCAL5).
#pragma once

#include <cstdint>

namespace vma::guard {

// The numbers of -v: what is above is not said. 0: nothing is.
enum class Level : std::uint8_t {
    kFatal = 1,
    kError,
    kWarning,
    kInformation, // at first
    kDebug,       // each connection
    kTrace,       // each message
};
inline constexpr unsigned kMostVerbose = 6;

void set_level(unsigned level) noexcept;
bool says(Level level) noexcept;
void use_syslog() noexcept; // from now on

// A line. On the console what is a warning or worse goes to standard error, as "vmad: ...".
[[gnu::format(printf, 2, 3)]] void say(Level level, const char *format, ...) noexcept;

} // namespace vma::guard
