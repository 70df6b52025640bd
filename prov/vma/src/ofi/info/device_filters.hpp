// SPDX-License-Identifier: BSD-2-Clause
// The user's filters of devices, from the environment.
#pragma once

#include <optional>

#include "core/filters.hpp"

namespace vma::ofi {

// FI_VMA_DEVICE, FI_VMA_INTERFACE, FI_VMA_ADDRESS and FI_VMA_PORT as they are now. Nothing if one of them means
// nothing: then no device may be used, for a filter with a typing error must not let data out where it should not go.
// The first time that happens one warning says so. Thread-safe.
std::optional<core::Filters> device_filters() noexcept;

} // namespace vma::ofi
