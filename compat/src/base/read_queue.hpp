// SPDX-License-Identifier: BSD-2-Clause
// One read of a completion queue, as all rings do it.
#pragma once

#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstddef>

#include "compat/src/config/params.hpp"

namespace vma::sock {

class Stream;

inline constexpr std::size_t kMostEntries = 16; // on the stack, which is the program's

// An endpoint's end: its FI_SHUTDOWN says the rest. Not inlined, as it has room on the stack.
[[gnu::noinline]] inline void drop_error(fid_cq &cq)
{
    fi_cq_err_entry error = {};
    fi_cq_readerr(&cq, &error, 0);
}

// handle(socket, entry) for each completion; the queue's poll lock is held. The number of events.
template <typename Handle> unsigned read_entries(fid_cq &cq, Handle handle)
{
    fi_cq_data_entry entries[kMostEntries];
    const unsigned most = config::params().cq_poll_batch_max;
    unsigned all = 0;
    for (;;) {
        const std::size_t wanted = std::min<std::size_t>(most - all, kMostEntries);
        const ssize_t n = fi_cq_read(&cq, entries, wanted);
        if (n <= 0) [[likely]] {
            if (n == -FI_EAVAIL) {
                drop_error(cq);
                return all + 1;
            }
            return all;
        }
        for (ssize_t i = 0; i < n; ++i)
            handle(*static_cast<Stream *>(entries[i].op_context), entries[i]);
        all += static_cast<unsigned>(n);
        if (static_cast<std::size_t>(n) < wanted || all == most)
            return all;
    }
}

} // namespace vma::sock
