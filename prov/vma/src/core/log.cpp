// SPDX-License-Identifier: BSD-2-Clause
// The default log: one write(2) a line to standard error, filtered by the variables that libfabric's own log
// reads.
#include "core/log.hpp"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <strings.h>
#include <unistd.h>

#include "core/kernel.hpp"

namespace vma::core {
namespace {

constexpr const char *kLevelNames[] = {"warn", "trace", "info", "debug"};
constexpr const char *kSubsysNames[] = {"core", "fabric", "domain", "ep_ctrl", "ep_data",
                                        "av",   "cq",     "eq",     "mr",      "cntr"};

// The process's, without a lock: of ofi/libfabric.cpp or of the program that has taken the log (set_log_sink()).
constinit std::atomic<const LogSink *> g_sink{nullptr};

// "a,b" lists, a leading '^' turns the list into exclusions: the syntax of FI_LOG_PROV and FI_LOG_SUBSYS.
bool list_admits(const char *list, const char *name)
{
    if (list == nullptr || *list == '\0')
        return true;
    const bool negated = *list == '^';
    if (negated)
        ++list;
    const std::size_t length = std::strlen(name);
    for (const char *item = list; item != nullptr; item = std::strchr(item, ',')) {
        if (*item == ',')
            ++item;
        if (std::strcspn(item, ",") == length && strncasecmp(item, name, length) == 0)
            return !negated;
    }
    return negated;
}

// Warnings are on unless FI_LOG_LEVEL says otherwise: a program that runs without libfabric has no other
// voice.
int level_limit()
{
    const char *value = ::secure_getenv("FI_LOG_LEVEL");
    if (value == nullptr)
        return static_cast<int>(Level::warn);
    for (int i = 0; i < 4; ++i) {
        if (strcasecmp(value, kLevelNames[i]) == 0)
            return i;
    }
    return -1;
}

// What of it the environment lets through, a bit for each pair of level and subsystem.
constexpr unsigned kLevels = std::size(kLevelNames);
constexpr unsigned kSubsystems = std::size(kSubsysNames);
constexpr std::uint64_t kIsRead = std::uint64_t{1} << 63;
static_assert(kLevels * kSubsystems < 63);
// The process's, without a lock: any thread may read the environment, and each comes to the same bits.
constinit std::atomic<std::uint64_t> g_filter{0};

constexpr std::uint64_t filter_bit(unsigned level, unsigned subsystem)
{
    return std::uint64_t{1} << (level * kSubsystems + subsystem);
}

// No static variable of a function: a fork() while one thread makes it would leave it locked in the child.
std::uint64_t read_filter()
{
    std::uint64_t bits = kIsRead;
    const int limit = list_admits(::secure_getenv("FI_LOG_PROV"), "vma") ? level_limit() : -1;
    for (unsigned subsystem = 0; subsystem < kSubsystems; ++subsystem) {
        if (!list_admits(::secure_getenv("FI_LOG_SUBSYS"), kSubsysNames[subsystem]))
            continue;
        for (int level = 0; level <= limit; ++level)
            bits |= filter_bit(static_cast<unsigned>(level), subsystem);
    }
    g_filter.store(bits, std::memory_order_relaxed);
    return bits;
}

[[gnu::noinline]] void write_stderr(Level level, Subsys subsys, const char *function, int line, const char *text)
{
    char out[1200];
    int length = std::snprintf(out, sizeof(out), "libvma-fi:%d:%s:%s:%s():%d<%s> %s\n", static_cast<int>(getpid()),
                               "vma", kSubsysNames[static_cast<int>(subsys)], function, line,
                               kLevelNames[static_cast<int>(level)], text);
    if (length <= 0)
        return;
    if (static_cast<std::size_t>(length) >= sizeof(out)) {
        length = static_cast<int>(sizeof(out)) - 1;
        out[length - 1] = '\n';
    }
    [[maybe_unused]] const ssize_t written = kernel::write(STDERR_FILENO, out, static_cast<std::size_t>(length));
}

} // namespace

const char *subsys_name(Subsys subsys) noexcept
{
    return kSubsysNames[static_cast<int>(subsys)];
}

void set_log_sink(const LogSink *sink) noexcept
{
    g_sink.store(sink, std::memory_order_release);
}

bool log_enabled(Level level, Subsys subsys) noexcept
{
    if (const LogSink *sink = g_sink.load(std::memory_order_acquire))
        return sink->enabled(level, subsys);
    const std::uint64_t known = g_filter.load(std::memory_order_relaxed);
    const std::uint64_t bits = known != 0 ? known : read_filter();
    return (bits & filter_bit(static_cast<unsigned>(level), static_cast<unsigned>(subsys))) != 0;
}

void log_line(Level level, Subsys subsys, const char *function, int line, const char *format, ...) noexcept
{
    const int saved_errno = errno;
    char text[1024];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (const LogSink *sink = g_sink.load(std::memory_order_acquire))
        sink->write(level, subsys, function, line, text);
    else
        write_stderr(level, subsys, function, line, text);
    errno = saved_errno;
}

} // namespace vma::core
