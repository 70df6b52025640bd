// SPDX-License-Identifier: BSD-2-Clause
// What Linux's sysfs says of an RDMA device: the PCI function it is, its NUMA node, the network interfaces over which
// addresses reach it; and of the machine, whether it has several nodes at all. `root` is where sysfs is mounted; tests
// put a folder of their own there. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vma::core {

inline constexpr const char *kSysfs = "/sys";

// Whether all memory of this machine is equally far from all its processors; so it is where the kernel doesn't say.
bool has_one_numa_node(const char *root = kSysfs) noexcept;

struct PciAddress {
    std::uint16_t domain = 0;
    std::uint8_t bus = 0;
    std::uint8_t device = 0;
    std::uint8_t function = 0;

    bool operator==(const PciAddress &) const = default;
};

// "0000:3b:00.0"; nothing for any other text, and for a domain above 0xffff (of a virtual bridge), which libfabric's
// fi_pci_attr has no room for.
std::optional<PciAddress> parse_pci_address(std::string_view text) noexcept;

// Nothing for a device that is not there, and for one that is not a PCI function (rxe, siw).
std::optional<PciAddress> rdma_pci_address(std::string_view device, const char *root = kSysfs) noexcept;

// -1: not known, as the kernel says it.
int rdma_numa_node(std::string_view device, const char *root = kSysfs) noexcept;

// The same of a network interface.
int net_numa_node(std::string_view interface, const char *root = kSysfs) noexcept;

// Whether there is any RDMA device.
bool has_rdma_devices(const char *root = kSysfs) noexcept;

struct RdmaPort {
    std::string device;
    std::uint8_t port = 0; // from 1 on
};

// The port of an RDMA device whose own interface this is; the first in the order of names where several are. Nothing
// where none is.
std::optional<RdmaPort> rdma_port_of(std::string_view interface, const char *root = kSysfs) noexcept;

} // namespace vma::core
