// SPDX-License-Identifier: BSD-2-Clause
// What a peer gave back of what was written to its ring: it goes by the kernel, before anything else. All of it runs
// with tx_lock held.
#pragma once

#include "compat/src/table/stream.hpp"

namespace vma::sock {

// A peer on another host may get what the kernel carries before it hears of a START that we sent before it.
inline bool is_unseen(const Stream &s)
{
    return s.tx.unseen.load(std::memory_order_acquire) != 0 && !s.endpoint_down.load(std::memory_order_acquire);
}

void resend(Stream &s); // as much as the kernel takes now

} // namespace vma::sock
