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

inline constexpr std::size_t kMostBatch = 128; // the most of VMA_CQ_POLL_BATCH_MAX

// handle(socket, entry) for each completion; the queue's poll lock is held. The number of events.
template <typename Handle> unsigned read_entries(fid_cq &cq, Handle handle)
{
    fi_cq_data_entry entries[kMostBatch];
    const ssize_t n = fi_cq_read(&cq, entries, std::min<std::size_t>(config::params().cq_poll_batch_max, kMostBatch));
    if (n <= 0) [[likely]] {
        if (n == -FI_EAVAIL) {
            fi_cq_err_entry error = {};
            fi_cq_readerr(&cq, &error, 0); // an endpoint's end: its FI_SHUTDOWN says the rest
            return 1;
        }
        return 0;
    }
    for (ssize_t i = 0; i < n; ++i)
        handle(*static_cast<Stream *>(entries[i].op_context), entries[i]);
    return static_cast<unsigned>(n);
}

} // namespace vma::sock
