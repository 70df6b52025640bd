// SPDX-License-Identifier: BSD-2-Clause
// Lines of the log for the calls that carry bytes, and for the waits: ENTER and EXIT at VMA_TRACELEVEL=fine, and at
// finer one more for what was sent or received. Calls that carry none are the interception layer's (call_log.hpp).
#pragma once

namespace vma::sock {

// From now on as `level` wants it (config::Level). Sockets and sets are called by tables, and these change; so a
// process that is not traced pays nothing for it. A call that is under way meanwhile is traced whole or not at all.
void trace_calls(int level);

} // namespace vma::sock
