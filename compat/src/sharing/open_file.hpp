// SPDX-License-Identifier: BSD-2-Clause
// What belongs to the open file, so that each process that holds the socket may change it, and is kept here as well, as
// the hot paths look at it: how calls wait, and what is shut down.
#pragma once

namespace vma::sock {

class Socket;

// Of a socket that others held and this process has alone again: the kernel is asked for it anew. False: another one
// has shut it down, so that it is pinned to the kernel, which alone knows how far. Offload lock held.
bool follow_open_file(Socket &s);

} // namespace vma::sock
