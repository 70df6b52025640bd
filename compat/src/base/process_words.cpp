// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/process_words.hpp"

#include "compat/src/libc/sections.hpp"

namespace vma::sock {

[[VMA_STARTUP_DATA]] constinit ProcessWords g_process;

} // namespace vma::sock
