// SPDX-License-Identifier: BSD-2-Clause
// What a peer gave back of what was written to its ring: it goes by the kernel, before anything else. All of it runs
// with tx_lock held.
#pragma once

#include "compat/src/table/stream.hpp"

namespace vma::sock {

inline bool is_unseen(const Socket &s)
{
    return s.tx.unseen.load(std::memory_order_acquire) != 0 && !s.endpoint_down.load(std::memory_order_acquire);
}

void resend(Socket &s); // as much as the kernel takes now

} // namespace vma::sock
