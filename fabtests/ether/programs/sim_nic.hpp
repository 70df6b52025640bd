// SPDX-License-Identifier: BSD-2-Clause
// A simulated NIC (doc/simulated-nic.md) between this host's interface and its network: its two other ends are `left`,
// where the host's interface leads, and `right`, in a network namespace of their own.
#pragma once

#include <string>

#include "core/fd.hpp"

namespace fabtest {

class SimNic
{
public:
    // `network`: the path of that namespace. Dies where something is missing. The device is sim0, and is in the table
    // of verbs' functions from then on.
    explicit SimNic(const std::string &network);
    ~SimNic();
    SimNic(const SimNic &) = delete;
    SimNic &operator=(const SimNic &) = delete;

    static void remove(); // as if it was pulled out; the host's kernel keeps its network

private:
    vma::core::UniqueFd wire_;
    vma::core::UniqueFd host_;
};

} // namespace fabtest
