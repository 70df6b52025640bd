// SPDX-License-Identifier: BSD-2-Clause
// Datagrams as the capture is told of them (compat/src/stats/capture.hpp), each with its own addresses.
#pragma once

#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

// What `route` has taken. tx_lock held.
[[gnu::cold]] void show_sent(const stats::Slot &record, const Route &route, const Message &m);

// Of its `length` bytes the first `there` are in `parts`. The lock that it is counted under.
[[gnu::cold]] void show_received(const stats::Slot &record, const About &about, const iovec *parts, std::size_t length,
                                 std::size_t there);

} // namespace vma::sock::udp
