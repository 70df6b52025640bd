// SPDX-License-Identifier: BSD-2-Clause
// Calls after which threads of this process have tables of descriptors of their own, by whichever of libc's functions.
// What we know of a number is known of the process's; so everything goes back to the kernel before such a call, and no
// number is followed from then on, whichever thread uses it (doc/multiplexing.md).
#pragma once

namespace vma::intercept {

// Before unshare() and close_range() with these flags: the calling thread gets a table.
void before_unshare(int flags);
void before_close_range(unsigned first, unsigned last, int flags);

// Before clone() with these flags. Who shares our memory and not our table: not a child of vfork(), which runs another
// program, while its parent's thread waits.
void before_clone(unsigned long flags);

} // namespace vma::intercept
