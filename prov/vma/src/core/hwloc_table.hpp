// SPDX-License-Identifier: BSD-2-Clause
// The functions of hwloc that reading a topology takes, found when they are first needed: a program whose devices need
// no choosing never pays for them.
#pragma once

#include <optional>

#include <hwloc.h>
#include <hwloc/distances.h>

#include "core/library.hpp"

namespace vma::core {

// name of the member, name of the symbol; hwloc's inline functions are made of these
#define VMA_HWLOC_FUNCTIONS(X)                                                                                         \
    X(init, hwloc_topology_init)                                                                                       \
    X(destroy, hwloc_topology_destroy)                                                                                 \
    X(abi_check, hwloc_topology_abi_check)                                                                             \
    X(set_components, hwloc_topology_set_components)                                                                   \
    X(set_flags, hwloc_topology_set_flags)                                                                             \
    X(set_all_types_filter, hwloc_topology_set_all_types_filter)                                                       \
    X(set_type_filter, hwloc_topology_set_type_filter)                                                                 \
    X(set_xml, hwloc_topology_set_xml)                                                                                 \
    X(set_synthetic, hwloc_topology_set_synthetic)                                                                     \
    X(load, hwloc_topology_load)                                                                                       \
    X(get_obj_by_depth, hwloc_get_obj_by_depth)                                                                        \
    X(distances_get_by_type, hwloc_distances_get_by_type)                                                              \
    X(distances_release, hwloc_distances_release)                                                                      \
    X(bitmap_next, hwloc_bitmap_next)

struct HwlocTable {
    VMA_HWLOC_FUNCTIONS(VMA_LIBRARY_MEMBER)
};

// Opens the library; nothing, and one line in the log, where it is not installed or too old. It stays loaded.
// Thread-safe.
std::optional<HwlocTable> open_hwloc() noexcept;

// For tests: the library that open_hwloc() opens from now on; nullptr: its own name again. The text must stay.
void use_hwloc_library(const char *name) noexcept;

} // namespace vma::core
