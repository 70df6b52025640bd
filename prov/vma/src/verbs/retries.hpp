// SPDX-License-Identifier: BSD-2-Clause
// How patient the device is with a peer before it gives a connection up: the user's parameters of the environment.
#pragma once

#include <cstdint>

namespace vma::verbs {

inline constexpr std::uint8_t kPathTimeout = 0xff; // what librdmacm says of the path

// In the units of ibv_modify_qp(3), which says what each means.
struct Retries {
    std::uint8_t retry_count = 7;
    std::uint8_t rnr_retry = 7; // for ever: a slow receiver is no error
    std::uint8_t ack_timeout = kPathTimeout;
    std::uint8_t min_rnr_timer = 5; // 0.06 ms
};

// FI_VMA_RETRY_COUNT, FI_VMA_RNR_RETRY, FI_VMA_ACK_TIMEOUT and FI_VMA_MIN_RNR_TIMER. A value that means nothing is told
// of, and its default taken.
Retries read_retries() noexcept;

} // namespace vma::verbs
