// SPDX-License-Identifier: BSD-2-Clause
// Numbers in texts that users and the kernel write.
#pragma once

#include <charconv>
#include <concepts>
#include <string_view>
#include <type_traits>

namespace vma::core {

// True: all of `text` is a decimal number up to `most`. Else `number` means nothing.
template <std::unsigned_integral Number>
bool parse_number(std::string_view text, std::type_identity_t<Number> most, Number &number) noexcept
{
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() && number <= most;
}

} // namespace vma::core
