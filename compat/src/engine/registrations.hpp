// SPDX-License-Identifier: BSD-2-Clause
// Memory of the program's own that it has registered with the devices that are open (register_memory_on_ring()):
// pinned, and known to them by a key. Thread-safe; each function takes the offload lock, or wants it held.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vma::sock {

struct Device;

// Registers it with each open device that has keys (RDMA devices, raw packets of Ethernet ports), or counts once more
// what is; `key` is that of the first of them. 0 or a positive errno, and nothing is registered: EOPNOTSUPP no such
// device is open, ENOMEM too much (kMostRegions, or ulimit -l), EINVAL, EFAULT: as ibv_reg_mr(3) says.
int register_memory(void *address, std::size_t length, std::uint32_t &key);
// One of these is over; with the last the memory is registered no more. 0, or ENOENT: it is none of them.
int deregister_memory(void *address, std::size_t length);
inline constexpr std::size_t kMostRegions = 256; // of all devices

void forget_registrations(const Device &d); // it is about to be closed; offload lock held
void registrations_after_fork_in_child();   // they are the parent's

} // namespace vma::sock
