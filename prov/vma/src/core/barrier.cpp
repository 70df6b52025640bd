// SPDX-License-Identifier: BSD-2-Clause
#include "core/barrier.hpp"

#include <linux/membarrier.h>

#include "core/kernel.hpp"

namespace vma::core {

bool join_barriers() noexcept
{
    return kernel::call(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

bool barrier_everywhere() noexcept
{
    return kernel::call(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
}

} // namespace vma::core
