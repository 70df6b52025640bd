// SPDX-License-Identifier: BSD-2-Clause
// What programs for libfabric 1.x may ask for, and the headers of 2.x warn of. The values are the interface's, and so
// the same in both.
#pragma once

#include <cstdint>

#include <rdma/fabric.h>

namespace vma::ofi {

inline constexpr int kMrUnspec = 0;        // FI_MR_UNSPEC
inline constexpr int kMrBasic = 1 << 0;    // FI_MR_BASIC
inline constexpr int kMrScalable = 1 << 1; // FI_MR_SCALABLE

inline constexpr std::uint64_t kLocalMr = 1ULL << 55; // FI_LOCAL_MR, a mode

inline constexpr std::uint64_t kOrderNone = 0; // FI_ORDER_NONE
// FI_ORDER_STRICT: of messages all there are, and of completions the order of their operations.
inline constexpr std::uint64_t kOrderStrict = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_RAS | FI_ORDER_WAR | FI_ORDER_WAW |
                                              FI_ORDER_WAS | FI_ORDER_SAR | FI_ORDER_SAW | FI_ORDER_SAS;
inline constexpr std::uint64_t kOrderData = 1ULL << 16; // FI_ORDER_DATA

} // namespace vma::ofi
