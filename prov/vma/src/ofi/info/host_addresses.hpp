// SPDX-License-Identifier: BSD-2-Clause
// The addresses by which this host is known, and the one that its routes choose towards another host. Each call asks
// the kernel.
#pragma once

#include <vector>

#include "ofi/address.hpp"

namespace vma::ofi {

// Of the interfaces that are up, IPv4 first, then in the kernel's order, without ports. Link-local IPv6 ones are left
// out, as they need a scope that their holders lose.
std::vector<Address> host_addresses();

// Those by which other hosts reach this one best, of one family, or AF_UNSPEC: any, which is the same for all then. All
// of the interfaces that RDMA devices have; else the one by which the default route goes; else the first of another
// interface; else the first of all, which is the loopback interface's. MPI libraries hand what they are given out to
// the processes of a host in turns, so each has to do for all of them.
std::vector<Address> reachable_addresses(int family);

// Without a port; empty where there is no route.
Address route_source(const Address &destination) noexcept;

} // namespace vma::ofi
