// SPDX-License-Identifier: BSD-2-Clause
// What VMA_TRACELEVEL=debug says of the calls on the program's sockets and sets that carry no bytes, in libvma's form.
// Those that do, and waits, are traced from fine on (process/call_trace.hpp).
#pragma once

#include "compat/src/base/error_text.hpp"
#include "compat/src/config/log.hpp"

namespace vma::intercept {

// What came of the call: its result. errno stays.
inline int left(const char *call, int result)
{
    if (result < 0)
        VMA_LOG(kDebug, "EXIT: %s() failed (errno=%d %s)", call, errno, sock::ErrorText().text());
    else
        VMA_LOG(kDebug, "EXIT: %s() returned with %d", call, result);
    return result;
}

} // namespace vma::intercept
