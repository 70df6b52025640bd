// SPDX-License-Identifier: BSD-2-Clause
// The letters of Prometheus' text format: what is escaped in labels and in help, and which bytes are UTF-8.
#include "util/vma_stats/metrics/exposition.hpp"

#include <stdio.h>

#include <algorithm>

namespace vma_stats {

namespace {

unsigned char byte_at(std::string_view text, std::size_t at)
{
    return at < text.size() ? static_cast<unsigned char>(text[at]) : std::uint8_t{0};
}

// How many bytes the character at `at` has; 0: there is none in UTF-8 (RFC 3629: no overlong forms, no surrogates).
std::size_t length_of_character(std::string_view text, std::size_t at)
{
    const unsigned char first = byte_at(text, at);
    const unsigned char second = byte_at(text, at + 1);
    if (first < 0x80)
        return 1;
    const std::size_t length = first >= 0xc2 && first <= 0xdf   ? 2
                               : first >= 0xe0 && first <= 0xef ? 3
                               : first >= 0xf0 && first <= 0xf4 ? 4
                                                                : 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((byte_at(text, at + i) & 0xc0) != 0x80)
            return 0;
    const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    const bool none = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
    return overlong || none ? 0 : length;
}

void append_escaped(std::string &out, std::string_view text, bool quotes)
{
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = length_of_character(text, at);
        if (length == 0)
            out += '?';
        else if (text[at] == '\\')
            out += "\\\\";
        else if (text[at] == '\n')
            out += "\\n";
        else if (text[at] == '"' && quotes)
            out += "\\\"";
        else
            out += text.substr(at, length);
        at += std::max<std::size_t>(length, 1);
    }
}

} // namespace

Labels &Labels::add(const char *name, std::string_view value)
{
    if (!text_.empty())
        text_ += ',';
    text_ += name;
    text_ += "=\"";
    append_escaped(text_, value, true);
    text_ += '"';
    return *this;
}

void Exposition::add_text(const Family &family, const Labels &labels, const char *value)
{
    auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry &e) { return e.family == &family; });
    if (entry == entries_.end())
        entry = entries_.insert(entry, {&family, {}});
    std::string &out = entry->samples;
    out += family.name;
    if (!labels.text().empty()) {
        out += '{';
        out += labels.text();
        out += '}';
    }
    out += ' ';
    out += value;
    out += '\n';
}

void Exposition::add(const Family &family, const Labels &labels, std::uint64_t value)
{
    add_text(family, labels, std::to_string(value).c_str());
}

void Exposition::add_seconds(const Family &family, const Labels &labels, std::uint64_t nanoseconds)
{
    constexpr std::uint64_t kSecond = 1000000000;
    char text[48];
    snprintf(text, sizeof text, "%llu.%09llu", static_cast<unsigned long long>(nanoseconds / kSecond),
             static_cast<unsigned long long>(nanoseconds % kSecond));
    add_text(family, labels, text);
}

void Exposition::add_percent(const Family &family, const Labels &labels, std::uint32_t percent)
{
    char text[24];
    snprintf(text, sizeof text, "%u.%02u", percent / 100, percent % 100);
    add_text(family, labels, text);
}

std::string Exposition::text() const
{
    std::string out;
    for (const Entry &entry : entries_) {
        out += "# HELP ";
        out += entry.family->name;
        out += ' ';
        append_escaped(out, entry.family->help, false);
        out += "\n# TYPE ";
        out += entry.family->name;
        out += entry.family->type == MetricType::kCounter ? " counter\n" : " gauge\n";
        out += entry.samples;
    }
    return out;
}

} // namespace vma_stats
