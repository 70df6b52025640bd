// SPDX-License-Identifier: BSD-2-Clause
// Prints the start-up header. Only the form is decided here; what there is to print comes from the table.
#include "compat/src/config/header.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ctime>

#include "compat/src/config/log.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "config.h"

namespace vma::config {

namespace {

constexpr const char *kRule = "---------------------------------------------------------------------------";

void print_command_line()
{
    char line[900];
    const int fd = libc::real.open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? libc::real.read(fd, line, sizeof line - 1) : 0;
    if (fd >= 0)
        libc::real.close(fd);
    if (length < 0)
        length = 0;
    while (length > 0 && line[length - 1] == '\0')
        --length;
    for (ssize_t i = 0; i < length; ++i)
        if (static_cast<unsigned char>(line[i]) < ' ')
            line[i] = ' '; // the NULs between the arguments, and what would break the line
    line[length] = '\0';
    VMA_LOG(kInfo, "Cmd Line: %s", line);
}

bool is_default(const Params &params, const Row &row)
{
    if (is_text(row)) {
        const char *const value = text_of(params, row);
        const char *const fallback = row.fallback_text;
        return value == nullptr || fallback == nullptr ? value == fallback : std::strcmp(value, fallback) == 0;
    }
    return number_of(params, row) == row.fallback;
}

} // namespace

void describe_value(const Params &params, const Row &row, char *text, std::size_t size)
{
    const std::int64_t number = number_of(params, row);
    if (is_text(row)) {
        const char *const value = text_of(params, row);
        std::snprintf(text, size, "%s", value != nullptr ? value : "");
        return;
    }
    if (is_bool(row) && !row.as_digit) {
        std::snprintf(text, size, "%s", number != 0 ? "Enabled" : "Disabled");
        return;
    }
    for (const auto &choice : row.choices) {
        if (choice.value == number) {
            std::snprintf(text, size, "%s", choice.shown.c_str());
            return;
        }
    }
    std::snprintf(text, size, "%lld", static_cast<long long>(number));
}

namespace {

// libvma's labels, at libvma's levels: what depends on the machine is a matter of debugging.
void print_place()
{
    char date[32] = "";
    const std::time_t now = std::time(nullptr);
    std::tm parts = {};
    if (::localtime_r(&now, &parts) != nullptr)
        std::strftime(date, sizeof date, "%c", &parts);
    utsname system = {};
    ::uname(&system);
    VMA_LOG(kDebug, "Current Time: %s", date);
    VMA_LOG(kDebug, "Pid: %5d", ::getpid());
    VMA_LOG(kDebug, "System: %s", system.release);
    VMA_LOG(kDebug, "Architecture: %s", system.machine);
    VMA_LOG(kDebug, "Node: %s", system.nodename);
}

void print_parameter(const Params &params, const Row &row)
{
    const Level level = row.always_shown || !is_default(params, row) ? Level::kInfo : Level::kDetails;
    if (!log_enabled(level))
        return;
    char value[256];
    const bool off = row.label_if_off != nullptr && number_of(params, row) == 0;
    describe_value(params, row, value, sizeof value);
    log_line(level, "%-30s %-26s [%s]", off ? row.label_if_off.c_str() : row.label.c_str(), off ? "Disabled" : value,
             row.name.c_str());
}

} // namespace

[[VMA_AT_STARTUP]] void print_header(const Params &params)
{
    if (!log_enabled(Level::kInfo))
        return;
    VMA_LOG(kInfo, "%s", kRule);
    VMA_LOG(kInfo, "VMA_VERSION: %s-0 Release built on %s", PACKAGE_VERSION, BUILT_ON);
    print_command_line();
    if (log_enabled(Level::kDebug))
        print_place();
    VMA_LOG(kInfo, "%s", kRule);
    for (const Row &row : parameters())
        print_parameter(params, row);
    VMA_LOG(kInfo, "%s", kRule);
}

} // namespace vma::config
