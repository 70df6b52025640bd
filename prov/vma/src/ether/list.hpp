// SPDX-License-Identifier: BSD-2-Clause
// What fi_getinfo says of the Ethernet NICs of this machine, for a process that may use them without the kernel.
#pragma once

#include "ofi/info/attr.hpp"
#include "ofi/info/getinfo.hpp"

namespace vma::ether {

inline constexpr char kFabricName[] = "ethernet";

// Of FI_EP_VMA_STREAM and FI_EP_DGRAM. `nic`: the interface's name, which has to live as long as the offer.
ofi::Offer stream_offer(const char *nic) noexcept;
ofi::Offer datagram_offer(const char *nic) noexcept;

void list_infos(const ofi::Query &query, ofi::InfoList &list) noexcept;

} // namespace vma::ether
