// SPDX-License-Identifier: BSD-2-Clause
// Making, copying and freeing struct fi_info, compatible with the program's fi_freeinfo(): every piece comes from
// malloc. Which values an info holds is decided elsewhere.
#pragma once

#include <memory>

#include <rdma/fabric.h>

#include "ofi/address.hpp"
#include "ofi/info/attr.hpp"

namespace vma::ofi {

// The whole list, as fi_freeinfo() does.
void free_info(fi_info *info) noexcept;

struct InfoDeleter {
    void operator()(fi_info *info) const noexcept { free_info(info); }
};
using InfoPtr = std::unique_ptr<fi_info, InfoDeleter>;

// An info of a device with its attributes and names but no addresses. Empty without memory.
InfoPtr make_info(const Offer &offer = kMsgOffer) noexcept;
// One info, deep; not what is linked behind it. Attributes that the source doesn't have are zero.
InfoPtr copy_info(const fi_info &source) noexcept;

// False without memory. An empty address clears it. Written as the info's addr_format says, so that is set first.
bool set_source(fi_info &info, const Address &address) noexcept;
bool set_destination(fi_info &info, const Address &address) noexcept;

// The info of a FI_CONNREQ event: the passive endpoint's own, with the addresses of this connection and what the
// accepting endpoint gives as its handle. Empty without memory.
InfoPtr request_info(const fi_info &model, fid_fabric &fabric, const Address &own, const Address &peer,
                     fid_t handle) noexcept;

} // namespace vma::ofi
