// SPDX-License-Identifier: BSD-2-Clause
// What fi_getopt() gives back: a value, and how long it is.
#pragma once

#include <cstddef>
#include <cstring>

#include <rdma/fi_errno.h>

namespace vma::ofi {

// 0, or -FI_ETOOSMALL where it does not fit.
template <typename Value> int give_option(const Value &option, void *value, std::size_t *length) noexcept
{
    if (!value || !length || *length < sizeof option)
        return -FI_ETOOSMALL;
    std::memcpy(value, &option, sizeof option);
    *length = sizeof option;
    return 0;
}

} // namespace vma::ofi
