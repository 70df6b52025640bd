// SPDX-License-Identifier: BSD-2-Clause
#include "log.hpp"

#include <syslog.h>

#include <cstdarg>
#include <cstdio>

namespace vma::guard {

namespace {

unsigned g_level = static_cast<unsigned>(Level::kInformation);
bool g_syslog = false;

int priority_of(Level level) noexcept
{
    constexpr int kPriorities[] = {LOG_ALERT, LOG_ALERT, LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG};
    return kPriorities[static_cast<unsigned>(level)];
}

} // namespace

void set_level(unsigned level) noexcept
{
    g_level = level;
}

bool says(Level level) noexcept
{
    return static_cast<unsigned>(level) <= g_level;
}

void use_syslog() noexcept
{
    openlog("vmad", LOG_PID | LOG_NDELAY, LOG_LOCAL5);
    g_syslog = true;
}

void say(Level level, const char *format, ...) noexcept
{
    if (!says(level))
        return;
    va_list values;
    va_start(values, format);
    if (g_syslog) {
        vsyslog(priority_of(level), format, values);
    } else {
        std::FILE *const where = level <= Level::kWarning ? stderr : stdout;
        if (where == stderr)
            std::fputs("vmad: ", where);
        std::vfprintf(where, format, values);
        std::fputc('\n', where);
    }
    va_end(values);
}

} // namespace vma::guard
