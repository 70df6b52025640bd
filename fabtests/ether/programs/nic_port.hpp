// SPDX-License-Identifier: BSD-2-Clause
// The argument "nic=NETWORK:SYSFS" of programs: raw packets of a simulated NIC whose other ends are in that network
// namespace (sim_nic.hpp), and a folder that tells of the device as the kernel would.
#pragma once

#include <memory>
#include <string>

#include "ether/nic.hpp"
#include "fabtests/ether/programs/sim_nic.hpp"

namespace fabtest {

struct NicPort {
    std::unique_ptr<SimNic> nic;
    std::string sysfs;
    vma::ether::NicOptions options; // as ever, if there is no such argument

    void set(const std::string &value) // behind "nic="
    {
        const std::size_t colon = value.find(':');
        sysfs = colon == std::string::npos ? "" : value.substr(colon + 1);
        nic = std::make_unique<SimNic>(value.substr(0, colon));
        options = {vma::ether::NicKind::kRaw, sysfs.c_str()};
    }
};

} // namespace fabtest
