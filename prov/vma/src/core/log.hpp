// SPDX-License-Identifier: BSD-2-Clause
// Log lines of the provider. They go to standard error by FI_LOG_LEVEL, or to the sink that the libfabric
// core gave us when it is what loaded the library. Formatting costs nothing when the level is off.
#pragma once

#include <cstdint>

namespace vma::core {

// Values are those of enum fi_log_level and enum fi_log_subsys.
enum class Level : int { warn, trace, info, debug };
enum class Subsys : int { core, fabric, domain, ep_ctrl, ep_data, av, cq, eq, mr, cntr };

struct LogSink {
    bool (*enabled)(Level, Subsys) noexcept;
    void (*write)(Level, Subsys, const char *function, int line, const char *text) noexcept;
};

// The sink must live for ever; nullptr goes back to standard error.
void set_log_sink(const LogSink *sink) noexcept;
const char *subsys_name(Subsys subsys) noexcept;

bool log_enabled(Level level, Subsys subsys) noexcept;

[[gnu::format(printf, 5, 6)]] void log_line(Level level, Subsys subsys, const char *function, int line,
                                            const char *format, ...) noexcept;

} // namespace vma::core

// Keeps errno, so that a caller may log first and report afterwards.
#define VMA_LOG(level, subsys, ...)                                                                                    \
    do {                                                                                                               \
        if (::vma::core::log_enabled(::vma::core::Level::level, ::vma::core::Subsys::subsys))                          \
            ::vma::core::log_line(::vma::core::Level::level, ::vma::core::Subsys::subsys, __func__, __LINE__,          \
                                  __VA_ARGS__);                                                                        \
    } while (false)

#define VMA_WARN(subsys, ...) VMA_LOG(warn, subsys, __VA_ARGS__)
#define VMA_INFO(subsys, ...) VMA_LOG(info, subsys, __VA_ARGS__)
#define VMA_DEBUG(subsys, ...) VMA_LOG(debug, subsys, __VA_ARGS__)
