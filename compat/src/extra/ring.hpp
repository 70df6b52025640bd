// SPDX-License-Identifier: BSD-2-Clause
// The ring of this process's sockets.
#pragma once

namespace vma::extra {

int ring(); // its descriptor, made at the first call; -1 with errno
// In a forked child, whose sockets are in no ring of its own.
void forget_ring();
void ring_after_fork_in_child();

} // namespace vma::extra
