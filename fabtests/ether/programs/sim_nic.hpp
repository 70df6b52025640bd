// SPDX-License-Identifier: BSD-2-Clause
// A simulated NIC (doc/simulated-nic.md) between this host's interface and its network: its two other ends are `left`, where the
// host's interface leads, and `right`, in a network namespace of their own.
#pragma once

#include <string>

#include "core/fd.hpp"
#include "ether/port.hpp"

namespace fabtest {

class SimNic
{
public:
    // `network`: the path of that namespace. Dies where something is missing.
    SimNic(const char *interface, const std::string &network);
    ~SimNic();
    SimNic(const SimNic &) = delete;
    SimNic &operator=(const SimNic &) = delete;

    vma::ether::PortOptions port() const { return {vma::ether::PortKind::kRaw, sysfs_.c_str()}; }

private:
    void name_interface(const char *interface);

    vma::core::UniqueFd wire_;
    vma::core::UniqueFd host_;
    std::string sysfs_; // a folder that tells of the device as the kernel would
};

} // namespace fabtest
