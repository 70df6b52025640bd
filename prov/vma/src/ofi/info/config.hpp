// SPDX-License-Identifier: BSD-2-Clause
// The configuration file that the user names: FI_VMA_CONFIG, else, for programs that come by libfabric, CCI_CONFIG.
#pragma once

#include "core/config_file.hpp"

namespace vma::ofi {

struct Configuration {
    bool usable = true;                     // false: a file is named that can't be read, so no device may be used
    const core::ConfigFile *file = nullptr; // for ever; nullptr: none is named
};

// As the variables are now. A file is read once, however it changes later, and what is wrong with it is logged then.
// Thread-safe.
Configuration configuration() noexcept;

} // namespace vma::ofi
