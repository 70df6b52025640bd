// SPDX-License-Identifier: BSD-2-Clause
// Words of users and peers as a log line shows them.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace vma::core {

// Between quotes: 63 bytes at most, then "..."; each that is no printable character is a question mark.
inline std::string quoted(std::string_view text)
{
    constexpr std::size_t kMost = 63;
    std::string result = "\"";
    for (const char c : text.substr(0, kMost))
        result += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
    return result + (text.size() > kMost ? "...\"" : "\"");
}

} // namespace vma::core
