// SPDX-License-Identifier: BSD-2-Clause
// getsockopt(TCP_ZEROCOPY_RECEIVE): the kernel's, but for what it doesn't have.
#pragma once

#include <sys/socket.h>

#include "compat/src/table/stream.hpp"

namespace vma::sock {

bool is_mapped_receive(int level, int name);

// Of a stream with an endpoint, or with bytes left in memory. As the kernel where it can map nothing: it tells how many
// bytes are to be read by recv() (`recv_skip_hint`), -1 with EIO at the end, and maps and copies nothing. So no byte is
// taken out of its turn.
int receive_mapped(Stream &s, int fd, void *value, socklen_t *len);

} // namespace vma::sock
