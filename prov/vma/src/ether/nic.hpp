// SPDX-License-Identifier: BSD-2-Clause
// An Ethernet NIC as this process has it, of either kind: frames of chosen flows in, frames out; the kernel keeps the
// rest. Opening takes nothing from the kernel until a flow is added.
#pragma once

#include <variant>

#include "ether/nic/device.hpp"
#include "ether/raw/nic.hpp"
#include "ether/xdp/nic.hpp"

namespace vma::ether {

static_assert(NicDevice<XdpNic> && NicDevice<RawNic>);

enum class NicKind {
    kAuto, // raw packets where the interface is an RDMA device's that has them, else AF_XDP
    kXdp,
    kRaw,
};

// FI_VMA_ETHERNET as it is now. A word that means nothing is warned of, and kAuto.
NicKind configured_nic_kind() noexcept;

// FI_VMA_ETHERNET_STAMPS as it is now. A word that means nothing is warned of, and kNone.
XdpStamps configured_stamps() noexcept;

// FI_VMA_ETHERNET_XDP as it is now. A word that means nothing is warned of, and kAuto.
XdpMode configured_xdp_mode() noexcept;

// FI_VMA_ETHERNET_OFFLOADS as it is now. A word that means nothing is warned of, and true.
bool configured_offloads() noexcept;

// FI_VMA_ETHERNET_PROCESSES as it is now: 1 to kMostPlaces; 1 where frames lie in memory of the program's own. What is
// no such number is warned of, and the usual one.
unsigned configured_processes() noexcept;

struct NicOptions {
    NicKind kind = configured_nic_kind();
    const char *sysfs = core::kSysfs; // where it is mounted
    XdpStamps stamps = configured_stamps();
    XdpMode xdp_mode = configured_xdp_mode();
    bool offloads = configured_offloads();
    unsigned processes = configured_processes(); // that may share it, by AF_XDP
};

class Nic
{
public:
    // 0 or negative errno, which is logged: those of XdpNic::open and RawNic::open; -EOPNOTSUPP: kRaw, and the
    // interface is no RDMA device's.
    [[nodiscard]] static int open(const char *interface, const NicOptions &options, Nic &opened) noexcept;

    template <typename Act> decltype(auto) visit(Act &&act) { return std::visit(std::forward<Act>(act), kind_); }

    unsigned interface() const noexcept // its index
    {
        return std::visit([](const auto &nic) { return nic.interface(); }, kind_);
    }
    Flows &flows() noexcept
    {
        return visit([](auto &nic) -> Flows & { return nic.flows(); });
    }
    bool is_raw() const noexcept { return std::holds_alternative<RawNic>(kind_); }

private:
    std::variant<XdpNic, RawNic> kind_;
};

} // namespace vma::ether
