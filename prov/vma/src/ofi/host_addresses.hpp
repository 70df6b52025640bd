// SPDX-License-Identifier: BSD-2-Clause
// The addresses by which this host is known, and the one that its routes choose towards another host. Each call asks the kernel.
#pragma once

#include <vector>

#include "ofi/address.hpp"

namespace vma::ofi {

// Of the interfaces that are up, IPv4 first, then in the kernel's order, without ports. Link-local IPv6 ones are left out, as they need a scope
// that their holders lose.
std::vector<Address> host_addresses();

// The same, but first those of interfaces that an RDMA device has, and last those of the loopback interface, which nobody else can use.
std::vector<Address> reachable_addresses();

// Without a port; empty where there is no route.
Address route_source(const Address &destination) noexcept;

} // namespace vma::ofi
