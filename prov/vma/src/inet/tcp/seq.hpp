// SPDX-License-Identifier: BSD-2-Clause
// Sequence numbers of TCP: they wrap, and are compared by their distance (RFC 9293, 3.4).
#pragma once

#include <cstdint>

namespace vma::inet {

using Seq = std::uint32_t;

constexpr std::int32_t distance(Seq from, Seq to)
{
    return static_cast<std::int32_t>(to - from);
}
constexpr bool before(Seq a, Seq b)
{
    return distance(a, b) > 0;
}
constexpr bool at_or_before(Seq a, Seq b)
{
    return distance(a, b) >= 0;
}
constexpr Seq later(Seq a, Seq b)
{
    return before(a, b) ? b : a;
}
constexpr Seq earlier(Seq a, Seq b)
{
    return before(a, b) ? a : b;
}

} // namespace vma::inet
