// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/config/cpu_list.hpp"

#include <charconv>
#include <string_view>

namespace vma::config {

namespace {

std::string_view trimmed(std::string_view text)
{
    constexpr std::string_view kBlank = " \t\r\n";
    const std::size_t first = text.find_first_not_of(kBlank);
    return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// The last digit stands for processors 0 to 3.
bool parse_mask(std::string_view digits, CpuMask &mask)
{
    const std::size_t zeros = digits.find_first_not_of('0');
    if (zeros == digits.npos || digits.size() - zeros > kMaxCpus / 4)
        return false; // none, or too many
    digits.remove_prefix(zeros);
    for (std::size_t i = 0; i < digits.size(); ++i) {
        unsigned value = 0;
        const char *const digit = digits.data() + digits.size() - 1 - i;
        if (std::from_chars(digit, digit + 1, value, 16).ptr == digit)
            return false;
        for (std::size_t bit = 0; bit < 4; ++bit)
            if (((value >> bit) & 1U) != 0)
                mask.set(4 * i + bit);
    }
    return true;
}

// Takes a number from the front of `text`.
bool take_number(std::string_view &text, std::size_t &number)
{
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number >= kMaxCpus)
        return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
}

bool take(std::string_view &text, char expected)
{
    if (!text.starts_with(expected))
        return false;
    text.remove_prefix(1);
    return true;
}

// first[-last[:step]]
bool take_range(std::string_view &text, CpuMask &mask)
{
    std::size_t first = 0;
    std::size_t step = 1;
    if (!take_number(text, first))
        return false;
    std::size_t last = first;
    if (take(text, '-')) {
        if (!take_number(text, last) || last < first)
            return false;
        if (take(text, ':') && (!take_number(text, step) || step == 0))
            return false;
    }
    for (std::size_t cpu = first; cpu <= last; cpu += step)
        mask.set(cpu);
    return true;
}

} // namespace

bool parse_cpus(const char *value, CpuMask &mask)
{
    std::string_view text = trimmed(value);
    mask = {};
    if (text.starts_with("0x") || text.starts_with("0X"))
        return parse_mask(text.substr(2), mask);
    do {
        if (!take_range(text, mask))
            return false;
    } while (take(text, ','));
    return text.empty();
}

} // namespace vma::config
