// SPDX-License-Identifier: BSD-2-Clause
// VMA_HANDLE_SIGSEGV: the calls that led to a segmentation fault, in the log. The process then ends as it would have,
// with its core file.
#pragma once

#include <csignal>

namespace vma::libc {

void trace_crashes(); // from here on, unless SIGSEGV has a handler or is ignored

// The program is not to see our handler: it has found none.
bool is_crash_handler(sighandler_t handler);
void hide_crash_handler(struct sigaction &action);

} // namespace vma::libc
