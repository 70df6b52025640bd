// SPDX-License-Identifier: BSD-2-Clause
// The ring of this process's sockets.
#pragma once

namespace vma::extra {

int ring();         // its descriptor, made at the first call; -1 with errno
void forget_ring(); // in a forked child

} // namespace vma::extra
