// SPDX-License-Identifier: BSD-2-Clause
// The RDMA devices of this host as the provider offers them: what each can do, and the addresses by which it is
// reached. Nothing here holds a device open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ofi/address.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/info/info.hpp"
#include "verbs/table.hpp"

namespace vma::verbs {

inline constexpr char kFabricName[] = "verbs";

// Found once and kept for the process's life: a device's name stands for the same hardware as long as it runs.
struct Nic {
    char name[IBV_SYSFS_NAME_MAX];
    ibv_device_attr attr;
    ibv_port_attr port; // of the port that was looked at first
    std::uint32_t max_inline;
    std::uint32_t max_sge;
    std::uint32_t rate_min;   // kbit/s that the device can pace a reliable connection to
    std::uint32_t rate_max;   // 0: it can't
    std::uint64_t clock_khz;  // of the counter that it stamps completions with; 0: it doesn't
    std::uint64_t clock_mask; // the bits of that counter
    ofi::Offer offer;         // its strings are kFabricName and `name`
};

// An address of this host that belongs to a device.
struct Place {
    const Nic *nic;
    std::uint8_t port;
    ofi::Address address; // port number 0
    std::string interface;
};

// Whether it is worth asking at all. Costs one look into a directory; loads nothing.
bool may_have_devices() noexcept;

// As it is now: addresses come and go. Empty without a device. Thread-safe.
std::vector<Place> places() noexcept;
// Of those that places() has found; nullptr if it is none.
const Nic *find_nic(const char *name) noexcept;

} // namespace vma::verbs
