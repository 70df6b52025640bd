// SPDX-License-Identifier: BSD-2-Clause
// Barriers that a process executes for others, by membarrier(2): where one side of a pair of stores and loads runs all
// the time and the other one hardly ever, the rare side pays for both, with an interrupt of each processor that the
// others run on.
#pragma once

namespace vma::core {

// From now on this process takes part in the barriers of others. False: the kernel, or a filter of system calls, has
// none. Cheap when repeated.
bool join_barriers() noexcept;

// As if every thread of all processes that take part had executed a full fence. Some microseconds. False: it was not
// done.
bool barrier_everywhere() noexcept;

} // namespace vma::core
