// SPDX-License-Identifier: BSD-2-Clause
// What the kernel says of a network interface that a NIC is opened by.
#pragma once

#include "inet/wire/types.hpp"

namespace vma::ether {

struct Interface {
    unsigned index = 0;
    unsigned mtu = 0;    // bytes
    unsigned queues = 1; // that frames are received by
    inet::Mac mac;
    bool is_veth = false; // a wire between two namespaces of one kernel

    unsigned longest_frame() const noexcept { return mtu + 14 + 2 * 4; } // bytes, with two VLAN tags
};

// 0 or negative errno: -ENODEV where there is none of that name.
[[nodiscard]] int describe(const char *name, Interface &described) noexcept;

} // namespace vma::ether
