// SPDX-License-Identifier: BSD-2-Clause
// What a parameter is. One row a parameter (table.cpp, rows/) makes the parser, the start-up header and the
// documentation. Rows are written with pointers and kept without, as each page of pointers costs each program that
// starts a copy of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "compat/src/config/params.hpp"

namespace vma::config {

inline constexpr std::int64_t kSecond = 1000000;        // us
inline constexpr std::int64_t kMostNumber = 2147483647; // where VMA's own limit is that of its type

// VMA_SPEC profiles, by libvma's numbers; kMultiRing has a name only.
enum class Spec : std::int32_t {
    kNone = 0,
    kUltraLatency = 10,
    kLatency = 15,
    k29West = 29,
    kWombat = 554,
    kMemcached = 623,
    kMemcachedIrq = 624,
    kRti = 784,
    k7750 = 7750,
    kMultiRing = 7751
};

// A text where it is kept: its place among all texts of the table.
struct Text {
    std::uint32_t place = 0; // 0: none
    const char *c_str() const;
    operator const char *() const { return c_str(); }
};

// A word that a parameter takes instead of a number; the first with a value is the one that is shown.
template <typename T> struct BasicChoice {
    T word; // matched without regard to case
    std::int64_t value;
    T shown; // in the header
};

// The default under a profile.
template <typename T> struct BasicOverride {
    Spec spec = Spec::kNone;
    std::int64_t value = 0;
    T word = {}; // of a text instead of `value`
};

// Those of one row, among all choices of the table.
struct Choices {
    std::uint16_t first = 0;
    std::uint16_t count = 0;
    bool empty() const { return count == 0; }
    const BasicChoice<Text> *begin() const;
    const BasicChoice<Text> *end() const { return begin() + count; }
};

using Field = std::variant<bool Params::*, std::int32_t Params::*, std::uint32_t Params::*, std::int64_t Params::*,
                           const char * Params::*>;

template <typename T, typename ChoicesOf> struct BasicParameter {
    T name;              // the environment variable
    T label;             // in the header, where libvma has it
    T label_if_off = {}; // the same where the value is 0, which is shown as "Disabled"; nullptr: it has no other
    Field field;
    std::int64_t fallback = 0; // the default
    T fallback_text = {};      // of a text; nullptr for none
    std::int64_t min = 0;      // of a number without choices
    std::int64_t max = 0;
    bool power_of_two = false;
    bool or_zero = false;                           // 0 is taken too, though it is below `min`
    bool as_digit = false;                          // a flag that the header shows as 0 or 1
    bool always_shown = false;                      // in the header at info level, the default too
    ChoicesOf choices = {};                         // if there are any, nothing else is taken
    std::array<BasicOverride<T>, 8> overrides = {}; // VMA_SPEC
    bool idle = false;                              // taken and of no effect: `text` says why
    T text = {};                                    // for the manual
};

// As written; for the compiler alone.
using Choice = BasicChoice<const char *>;
using Parameter = BasicParameter<const char *, std::span<const Choice>>;

// As kept.
using Row = BasicParameter<Text, Choices>;

std::span<const Row> parameters();

constexpr std::int64_t default_of(const Row &row, Spec spec)
{
    for (const BasicOverride<Text> &override : row.overrides)
        if (override.spec != Spec::kNone && override.spec == spec)
            return override.value;
    return row.fallback;
}

inline const char *default_text_of(const Row &row, Spec spec)
{
    for (const BasicOverride<Text> &override : row.overrides)
        if (override.spec != Spec::kNone && override.spec == spec)
            return override.word;
    return row.fallback_text;
}

constexpr bool is_text(const Row &row)
{
    return std::holds_alternative<const char * Params::*>(row.field);
}

constexpr bool is_bool(const Row &row)
{
    return std::holds_alternative<bool Params::*>(row.field);
}

constexpr void set_number(Params &params, const Field &field, std::int64_t value)
{
    if (auto *flag = std::get_if<bool Params::*>(&field))
        params.**flag = value != 0;
    else if (auto *narrow = std::get_if<std::int32_t Params::*>(&field))
        params.**narrow = static_cast<std::int32_t>(value);
    else if (auto *natural = std::get_if<std::uint32_t Params::*>(&field))
        params.**natural = static_cast<std::uint32_t>(value);
    else if (auto *wide = std::get_if<std::int64_t Params::*>(&field))
        params.**wide = value;
}

constexpr void set_text(Params &params, const Field &field, const char *value)
{
    if (auto *text = std::get_if<const char * Params::*>(&field))
        params.**text = value;
}

constexpr std::int64_t number_of(const Params &params, const Row &row)
{
    if (auto *flag = std::get_if<bool Params::*>(&row.field))
        return params.**flag ? 1 : 0;
    if (auto *narrow = std::get_if<std::int32_t Params::*>(&row.field))
        return params.**narrow;
    if (auto *natural = std::get_if<std::uint32_t Params::*>(&row.field))
        return params.**natural;
    if (auto *wide = std::get_if<std::int64_t Params::*>(&row.field))
        return params.**wide;
    return 0;
}

constexpr const char *text_of(const Params &params, const Row &row)
{
    auto *field = std::get_if<const char * Params::*>(&row.field);
    return field != nullptr ? params.**field : nullptr;
}

} // namespace vma::config
