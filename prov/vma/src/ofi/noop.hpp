// SPDX-License-Identifier: BSD-2-Clause
// What an operation table holds in the places of calls that an object doesn't offer: each answers -FI_ENOSYS, as
// libfabric's own fi_no_* do, so that no place of a table is ever null.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

namespace vma::ofi {

// Converts to any operation: the slot's type chooses the arguments, as in `.av_open = no_op`.
template <typename Return, typename... Args> Return no_op(Args...)
{
    return static_cast<Return>(-FI_ENOSYS);
}

} // namespace vma::ofi
