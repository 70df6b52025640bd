// SPDX-License-Identifier: BSD-2-Clause
// What the program has set SO_SNDBUF and SO_RCVBUF to, for transports whose buffers are their own.
#pragma once

#include <cstdint>

namespace vma::sock {

// Bytes as the program gave them, which getsockopt() tells doubled; 0 where the program has set none, or the kernel
// doesn't say (SO_BUF_LOCK, Linux 5.14).
struct AskedBuffers {
    std::uint32_t send = 0;
    std::uint32_t receive = 0;
};

AskedBuffers asked_buffers(int fd);

} // namespace vma::sock
