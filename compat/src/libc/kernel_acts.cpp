// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/libc/kernel_acts.hpp"

namespace vma::libc {

constinit KernelActs g_kernel_acts;

} // namespace vma::libc
