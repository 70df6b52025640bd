// SPDX-License-Identifier: BSD-2-Clause
// Reads the parameters from the environment. What is wrong is never fatal: one warning, and the default.
#include <dlfcn.h>
#include <strings.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "compat/src/config/aliases.hpp"
#include "compat/src/config/asked.hpp"
#include "compat/src/config/header.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/privileged.hpp"
#include "compat/src/config/relations.hpp"
#include "compat/src/config/state.hpp"
#include "compat/src/config/table.hpp"
#include "compat/src/config/troubles.hpp"
#include "compat/src/libc/join.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::config {

namespace {

constexpr const char *kBlank = " \t\r\n";

bool parse_choice(const Row &row, const char *value, std::int64_t &number)
{
    const char *const start = value + std::strspn(value, kBlank);
    const std::size_t length = std::strcspn(start, kBlank);
    if (start[length + std::strspn(start + length, kBlank)] != '\0')
        return false;
    for (const auto &choice : row.choices) {
        if (std::strlen(choice.word) == length && ::strncasecmp(choice.word, start, length) == 0) {
            number = choice.value;
            return true;
        }
    }
    return false;
}

bool parse_number(const Row &row, const char *value, std::int64_t &number)
{
    char *end = nullptr;
    errno = 0;
    const long long parsed = std::strtoll(value, &end, 10);
    if (end == value || end[std::strspn(end, kBlank)] != '\0' || errno != 0)
        return false;
    if (is_bool(row)) {
        number = parsed != 0 ? 1 : 0;
        return true;
    }
    if ((parsed < row.min && (parsed != 0 || !row.or_zero)) || parsed > row.max ||
        (row.power_of_two && (parsed & (parsed - 1)) != 0))
        return false;
    number = parsed;
    return true;
}

// Sets one parameter; false if the variable is there and means nothing.
bool read_row(Params &params, const Row &row, Spec spec)
{
    char text[kAliasText];
    const char *value = variable(row.name);
    if (value == nullptr)
        value = older_value(row, text);
    if (is_text(row)) {
        // A copy, kept for ever: the program may change its environment.
        value = value != nullptr ? value : default_text_of(row, spec);
        set_text(params, row.field, value != nullptr ? ::strdup(value) : nullptr);
        return true; // NOLINT(clang-analyzer-unix.Malloc)
    }
    std::int64_t number = default_of(row, spec);
    const bool good =
        value == nullptr || (row.choices.empty() ? parse_number(row, value, number) : parse_choice(row, value, number));
    set_number(params, row.field, number);
    return good;
}

void describe_range(const Row &row, char *text, std::size_t size)
{
    if (is_bool(row)) {
        std::snprintf(text, size, "0 or 1");
    } else if (row.choices.empty()) {
        std::snprintf(text, size, "%s%lld..%lld%s", row.or_zero ? "0 or " : "", static_cast<long long>(row.min),
                      static_cast<long long>(row.max), row.power_of_two ? ", a power of two" : "");
    } else {
        std::size_t used = 0;
        text[0] = '\0';
        for (const auto &choice : row.choices) {
            if (choice.shown[0] == '\0' || used >= size)
                continue; // one spelling a value is enough
            used += static_cast<std::size_t>(
                std::snprintf(text + used, size - used, used == 0 ? "%s" : ", %s", choice.word.c_str()));
        }
    }
}

void warn(const Params &params, const Row &row)
{
    char range[192];
    char used[64];
    char older[kAliasText];
    const char *const own = variable(row.name);
    describe_range(row, range, sizeof range);
    describe_value(params, row, used, sizeof used);
    VMA_LOG(kWarn, "%s=%s is not valid (expected %s): using %s", row.name.c_str(),
            own != nullptr ? own : older_value(row, older), range, used);
}

Spec read_spec(Params &params)
{
    for (const Row &row : parameters())
        if (row.field == Field(&Params::spec))
            read_row(params, row, Spec::kNone);
    return static_cast<Spec>(params.spec);
}

} // namespace

unsigned read_environment(Params &params)
{
    const Spec spec = read_spec(params);
    params.spec_latency = spec == Spec::kLatency;
    unsigned wrong = 0;
    for (const Row &row : parameters())
        wrong += read_row(params, row, spec) ? 0 : 1;
    if (params.trace_level >= static_cast<int>(Level::kDebug) && variable("VMA_LOG_DETAILS") == nullptr)
        params.log_details = 2;
    relate(params);
    return wrong;
}

[[VMA_AT_STARTUP]] bool expand_process_id(const char *text, char *out, std::size_t size)
{
    const char *const mark = std::strstr(text, "%d");
    if (mark == nullptr)
        return libc::join(out, size, {text}) < size;
    const int length = std::snprintf(out, size, "%.*s%d%s", static_cast<int>(mark - text), text, ::getpid(), mark + 2);
    return length >= 0 && static_cast<std::size_t>(length) < size;
}

namespace {

// libc's own initialisation finds it there, but comes after what stands in .preinit_array: behind the arguments, at the
// top of the stack.
void find_environment()
{
    auto *const top = static_cast<std::uintptr_t *const *>(::dlsym(RTLD_DEFAULT, "__libc_stack_end"));
    if (top == nullptr || *top == nullptr)
        return;
    const std::uintptr_t count = **top;
    environ = reinterpret_cast<char **>(*top + 1 + count + 1);
}

void warn_about_values()
{
    Params scratch = g_params;
    for (const Row &row : parameters())
        if (!is_text(row) && !read_row(scratch, row, static_cast<Spec>(g_params.spec)))
            warn(g_params, row);
        else if (row.idle && variable(row.name) != nullptr)
            VMA_LOG(kInfo, "%s: %s", row.name.c_str(), row.text.c_str());
    warn_about_names();
    warn_about_relations();
}

} // namespace

void load_params_early()
{
    if (!g_config.loaded.load(std::memory_order_acquire) && environ == nullptr)
        find_environment();
    load_params();
}

[[VMA_AT_STARTUP]] void load_params()
{
    if (g_config.loaded.exchange(true, std::memory_order_acq_rel))
        return;
    const int saved = errno;
    read_permission();
    const bool told = is_privileged() || any_variable(); // most that /etc/ld.so.preload brings the library into are not
    if (told)
        read_environment(g_params);
    else
        relate(g_params);
    const bool silent = is_privileged() ? variable("VMA_TRACELEVEL") == nullptr : !told;
    if (silent && !is_asked_for())
        g_params.trace_level = static_cast<std::int32_t>(Level::kPanic);
    open_log(g_params);
    print_header(g_params);
    if (told) { // after the header, when the log is open
        warn_about_values();
        warn_about_troubles(g_params);
    }
    errno = saved;
}

} // namespace vma::config
