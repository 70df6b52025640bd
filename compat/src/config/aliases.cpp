// SPDX-License-Identifier: BSD-2-Clause
// The older names, and the search for the nearest one. Facts of the manuals of 2008 and 9.8.60 and of the readme of
// 2015.
#include "compat/src/config/aliases.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "compat/src/config/log.hpp"
#include "compat/src/config/privileged.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::config {

namespace {

enum class Meaning {
    kSame,    // the target's value
    kForce,   // not 0: both ratios of select() are 1
    kPackets, // of 2048 bytes each, as buffers of 2008 were
    kGone,    // nothing: `note` says why
    kPassed   // the same of what libvma itself passes over or had besides: a line, no warning
};

struct Alias { // no pointers: each program that starts would have a copy of their page
    char name[40];
    Meaning meaning;
    char target[32] = "";
    char note[72] = "";
};

constexpr Alias kAliases[] = {
    {"VMA_RX_POLL_OS_RATIO", Meaning::kSame, "VMA_RX_UDP_POLL_OS_RATIO"},
    {"VMA_RX_SKIP_OS", Meaning::kSame, "VMA_RX_UDP_POLL_OS_RATIO"},
    {"VMA_SELECT_POLL_OS_FORCE", Meaning::kForce, "VMA_SELECT_POLL_OS_RATIO"},
    {"VMA_SELECT_POLL_OS_FORCE", Meaning::kForce, "VMA_SELECT_SKIP_OS"},
    {"VMA_CQ_DRAIN_WCE_MAX", Meaning::kSame, "VMA_PROGRESS_ENGINE_WCE_MAX"},
    {"VMA_POLL", Meaning::kSame, "VMA_SOCKETXTREME"},
    {"VMA_UC_OFFLOAD", Meaning::kSame, "VMA_OFFLOADED_SOCKETS"},
    {"VMA_TX_OFFLOAD", Meaning::kSame, "VMA_OFFLOADED_SOCKETS"},
    {"VMA_RX_OFFLOAD", Meaning::kSame, "VMA_OFFLOADED_SOCKETS"},
    {"VMA_RX_SOCKET_MAX", Meaning::kPackets, "VMA_RX_BYTES_MIN"},
    {"VMA_SKIP_OS_CALL", Meaning::kSame, "VMA_SELECT_SKIP_OS"},
    {"VMA_HUGETBL", Meaning::kGone, "", "no longer supported: VMA_MEM_ALLOC_TYPE says which memory is used"},
    {"VMA_TX_BLOCK", Meaning::kGone, "", "the program itself says whether a call waits"},
    {"VMA_TX_IP_CHECKSUM", Meaning::kGone, "", "checksums are always there where the network needs them"},
    {"VMA_CHECKSUM", Meaning::kGone, "", "checksums are always there where the network needs them"},
    {"VMA_TX_DROP_MODE", Meaning::kGone, "", "nothing is dropped for tests"},
    {"VMA_RX_DRAIN_CQ", Meaning::kGone, "", "see VMA_RX_CQ_DRAIN_RATE_NSEC"},
    {"VMA_SELECT_IB_INTR", Meaning::kGone, "", "VMA_SELECT_POLL=-1 waits without interrupts"},
    {"VMA_IGMP", Meaning::kGone, "", "the kernel is the member of groups, and speaks IGMP for them"},
    {"VMA_FORCE_QP_MC_ATTACH", Meaning::kGone, "", "the kernel is the member of groups"},
    {"VMA_QP_LOGIC", Meaning::kGone, "", "see VMA_RING_ALLOCATION_LOGIC_RX"},
    {"VMA_IPERF", Meaning::kGone, "", "iperf needs nothing of its own"},
    {"VMA_IPOIB", Meaning::kPassed, "", "IPoIB interfaces are the kernel's"},
    {"VMA_TSO", Meaning::kPassed, "", "a port segments by its device where that can"},
    {"VMA_TX_BUF_SIZE", Meaning::kPassed, "", "there is no pool of buffers"},
    {"VMA_RX_SW_CSUM", Meaning::kPassed, "", "checksums are looked at where no device has done so"},
    {"VMA_INTERNAL_THREAD_TCP_TIMER_HANDLING", Meaning::kPassed, "", "TCP's timers ring when they are due"},
    {"VMA_RX_UDP_HW_TS_CONVERSION", Meaning::kPassed, "", "see VMA_HW_TS_CONVERSION"},
    {"VMA_SUPPRESS_IGMP_WARNING", Meaning::kPassed, "", "there is no such warning"},
    {"VMA_TX_BACKLOG_MAX", Meaning::kPassed, "", "nothing that is sent waits for an address"},
    {"VMA_MAX_INLINE", Meaning::kPassed, "", "see VMA_TX_MAX_INLINE"},
};

// Known, but no rows: read where they are needed.
constexpr char kElsewhere[][24] = {
    "VMA_LOG_CB_FUNC_PTR",
    "VMA_BUILD",
};
constexpr char kTestPrefixes[][12] = {"VMA_TEST_", "VMA_SIM_"}; // of this project's own tests

constexpr char kOurs[] = "VMA_"; // not among the other texts: each program looks for it
constexpr std::size_t kNameMax = 64;
constexpr int kMostWarnings = 16;

bool has_prefix(const char *text, const char *prefix)
{
    return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

const Alias *alias_of(const char *name)
{
    for (const Alias &alias : kAliases)
        if (std::strcmp(alias.name, name) == 0)
            return &alias;
    return nullptr;
}

const Row *row_of(const char *name)
{
    for (const Row &row : parameters())
        if (std::strcmp(row.name, name) == 0)
            return &row;
    return nullptr;
}

bool is_known(const char *name)
{
    const auto same = [name](const char *other) { return std::strcmp(name, other) == 0; };
    const auto begins = [name](const char *prefix) { return has_prefix(name, prefix); };
    return row_of(name) != nullptr || alias_of(name) != nullptr ||
           std::any_of(std::begin(kElsewhere), std::end(kElsewhere), same) ||
           std::any_of(std::begin(kTestPrefixes), std::end(kTestPrefixes), begins);
}

// What the alias makes of its value, nullptr for nothing.
const char *translate(const Alias &alias, const char *value, char (&text)[kAliasText])
{
    switch (alias.meaning) {
    case Meaning::kSame:
        return value;
    case Meaning::kForce:
        return std::strtol(value, nullptr, 10) != 0 ? "1" : nullptr;
    case Meaning::kPackets:
        std::snprintf(text, sizeof text, "%lld", std::clamp(std::strtoll(value, nullptr, 10), 0LL, 1LL << 19) * 2048);
        return text;
    case Meaning::kGone:
    case Meaning::kPassed:
        break;
    }
    return nullptr;
}

void warn_about_alias(const Alias &alias)
{
    const char *const value = variable(alias.name);
    if (value == nullptr)
        return;
    char text[kAliasText];
    const char *const meant = translate(alias, value, text);
    if (alias.meaning == Meaning::kPassed)
        VMA_LOG(kInfo, "%s=%s is not looked at: %s", alias.name, value, alias.note);
    else if (alias.meaning == Meaning::kGone)
        VMA_LOG(kWarn, "%s=%s is not looked at: %s", alias.name, value, alias.note);
    else if (variable(alias.target) != nullptr)
        VMA_LOG(kWarn, "%s=%s is an old name's, and not looked at: %s is set", alias.name, value, alias.target);
    else if (meant != nullptr)
        VMA_LOG(kWarn, "%s=%s is an old name's: taken for %s=%s", alias.name, value, alias.target, meant);
    else
        VMA_LOG(kWarn, "%s=%s is an old name's, and changes nothing", alias.name, value);
}

// Edits between two names: a letter wrong, missing, too many, or swapped with its neighbour. Both at most kNameMax
// long.
std::size_t distance(const char *a, const char *b)
{
    const std::size_t m = std::strlen(a);
    const std::size_t n = std::strlen(b);
    std::array<std::array<std::uint8_t, kNameMax + 1>, 3> rows{};
    for (std::size_t j = 0; j <= n; ++j)
        rows[0][j] = static_cast<std::uint8_t>(j);
    for (std::size_t i = 1; i <= m; ++i) {
        auto &now = rows[i % 3];
        const auto &last = rows[(i + 2) % 3];
        now[0] = static_cast<std::uint8_t>(i);
        for (std::size_t j = 1; j <= n; ++j) {
            const int change = a[i - 1] == b[j - 1] ? 0 : 1;
            int least = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + change});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                least = std::min(least, rows[(i + 1) % 3][j - 2] + 1);
            now[j] = static_cast<std::uint8_t>(least);
        }
    }
    return rows[m % 3][n];
}

// Its letters up to the "=", if it is of the form that our names have.
bool name_of(const char *entry, char (&name)[kNameMax + 1])
{
    const std::size_t length = std::strspn(entry, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (!has_prefix(entry, kOurs) || entry[length] != '=' || length == std::strlen(kOurs) || length > kNameMax)
        return false;
    std::memcpy(name, entry, length);
    name[length] = '\0';
    return true;
}

void warn_about_unknown(const char *name)
{
    const char *const like = nearest_name(name);
    if (like != nullptr)
        VMA_LOG(kWarn, "%s is no parameter of this library, and not looked at: is %s meant?", name, like);
    else
        VMA_LOG(kWarn, "%s is no parameter of this library, and not looked at", name);
}

} // namespace

[[VMA_AT_STARTUP]] const char *raw_variable(const char *name)
{
    return is_privileged() ? granted(name) : ::secure_getenv(name);
}

[[VMA_AT_STARTUP]] const char *variable(const char *name)
{
    const char *const value = raw_variable(name);
    return value != nullptr && value[std::strspn(value, " \t\r\n")] != '\0' ? value : nullptr;
}

[[VMA_AT_STARTUP]] bool any_variable()
{
    for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry)
        if (has_prefix(*entry, kOurs))
            return true;
    return false;
}

const char *older_value(const Row &row, char (&text)[kAliasText])
{
    for (const Alias &alias : kAliases) {
        if (std::strcmp(alias.target, row.name) != 0)
            continue;
        if (const char *const value = variable(alias.name))
            if (const char *const meant = translate(alias, value, text))
                return meant;
    }
    return nullptr;
}

const char *nearest_name(const char *name)
{
    const std::size_t length = std::strlen(name);
    if (length > kNameMax)
        return nullptr;
    const char *best = nullptr;
    std::size_t least = length / 5 + 1;
    const auto look_at = [&](const char *known) {
        const std::size_t other = std::strlen(known);
        if (std::max(length, other) - std::min(length, other) >= least) // it takes as many edits
            return;
        const std::size_t edits = distance(name, known);
        if (edits < least) {
            least = edits;
            best = known;
        }
    };
    for (const Row &row : parameters())
        look_at(row.name);
    for (const char *const known : kElsewhere)
        look_at(known);
    return best;
}

void warn_about_names()
{
    for (const Alias &alias : kAliases)
        warn_about_alias(alias);
    int unknown = 0;
    for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        char name[kNameMax + 1];
        if (!name_of(*entry, name) || ::secure_getenv(name) == nullptr || is_known(name))
            continue;
        if (++unknown <= kMostWarnings)
            warn_about_unknown(name);
    }
    if (unknown > kMostWarnings)
        VMA_LOG(kWarn, "%d more variables with names VMA_* are no parameters of this library", unknown - kMostWarnings);
}

} // namespace vma::config
