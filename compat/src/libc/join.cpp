// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/libc/join.hpp"

#include <algorithm>
#include <cstring>

#include "compat/src/libc/sections.hpp"

namespace vma::libc {

[[VMA_AT_STARTUP]] std::size_t join(char *out, std::size_t size, std::initializer_list<std::string_view> texts)
{
    std::size_t length = 0;
    std::size_t kept = 0;
    for (const std::string_view text : texts) {
        const std::size_t fits = std::min(text.size(), size - 1 - kept);
        std::memcpy(out + kept, text.data(), fits);
        kept += fits;
        length += text.size();
    }
    out[kept] = '\0';
    return length;
}

} // namespace vma::libc
