// SPDX-License-Identifier: BSD-2-Clause
// Opens the provider before the first message where the user has asked for latency: it takes some milliseconds, which
// are connect()'s or accept()'s then, and not a send's.
#pragma once

#include <netinet/in.h>

namespace vma::sock {

class Stream;

// After connect(), which may be under way, to that peer; or after accept(), with none. Once in a process: others find
// it opened. No lock held; errno may change.
void open_early(const Stream &s, int fd, const sockaddr_in6 *peer = nullptr);

} // namespace vma::sock
