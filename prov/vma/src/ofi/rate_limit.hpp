// SPDX-License-Identifier: BSD-2-Clause
// FI_OPT_VMA_RATE_LIMIT as fi_setopt() and fi_getopt() carry it, the same for all devices.
#pragma once

#include <cstddef>
#include <cstring>

#include <rdma/fi_errno.h>

#include "rdma/fi_ext_vma.h"
#include "vma/pacer.hpp"

namespace vma::ofi {

// 0 or -FI_EINVAL.
inline int read_rate_limit(const void *value, std::size_t length, fi_vma_rate_limit &limit) noexcept
{
    if (!value || length != sizeof limit)
        return -FI_EINVAL;
    std::memcpy(&limit, value, sizeof limit);
    return 0;
}

inline fi_vma_rate_limit limit_of(const Pacer &pacer) noexcept
{
    fi_vma_rate_limit limit{};
    limit.rate = pacer.rate();
    limit.max_burst = pacer.limited() ? pacer.burst() : 0;
    limit.typical_packet = pacer.typical_packet();
    return limit;
}

} // namespace vma::ofi
