// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo of the provider, in its two steps: do the hints fit (hints.cpp), and which addresses are meant
// (getinfo.cpp).
#pragma once

#include <cstdint>

#include <rdma/fabric.h>

namespace vma::ofi {

struct Offer;

int getinfo(std::uint32_t version, const char *node, const char *service, std::uint64_t flags, const fi_info *hints,
            fi_info **info);

// Whether an endpoint type of the local device can do what the hints ask. Where it can't, a debug line names the hint.
bool hints_fit(std::uint32_t version, const Offer &offer, const fi_info &hints) noexcept;

// Puts what the hints chose among the offered into an info that make_info() filled.
void apply_hints(std::uint32_t version, const Offer &offer, const fi_info &hints, fi_info &info) noexcept;

} // namespace vma::ofi
