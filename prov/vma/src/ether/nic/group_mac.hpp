// SPDX-License-Identifier: BSD-2-Clause
// The link address of a multicast group (RFC 1112, 6.4 and RFC 2464, 7).
#pragma once

#include <cstdint>

#include "inet/wire/types.hpp"

namespace vma::ether {

inline inet::Mac group_mac(const inet::IpAddress &group) noexcept
{
    const std::uint8_t *const a = group.bytes.data() + 12;
    if (group.is_v4())
        return {{0x01, 0x00, 0x5e, static_cast<std::uint8_t>(a[1] & 0x7f), a[2], a[3]}};
    return {{0x33, 0x33, a[0], a[1], a[2], a[3]}};
}

} // namespace vma::ether
