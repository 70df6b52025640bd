// SPDX-License-Identifier: BSD-2-Clause
// Whole frames of an interface, in and out, past the kernel's stack.
#pragma once

#include "core/fd.hpp"

namespace fabtest {

// Non-blocking; without frames that this host sends. Dies where it can't be opened.
vma::core::UniqueFd open_packet_socket(const char *interface);

} // namespace fabtest
