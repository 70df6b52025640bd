// SPDX-License-Identifier: BSD-2-Clause
// What sockets tell the multiplexers, and ask them.
#include "compat/src/table/observers.hpp"

#include "compat/src/mux/mux.hpp"

namespace vma::sock {

constinit const Multiplexers kMultiplexers = {
    .may_follow = mux::may_follow,
    .became_offloaded = mux::became_offloaded,
    .became_kernel_only = mux::became_kernel_only,
    .tells_edges = mux::tells_edges,
    .ring_owner = mux::ring_owner,
    .descriptor_closed = mux::descriptor_closed,
    .leave_sets = mux::leave_sets,
    .passed = mux::set_passed,
    .before_exec = mux::before_exec,
    .exec_failed = mux::exec_failed,
    .fork_prepare = mux::fork_prepare,
    .fork_parent = mux::fork_parent,
    .fork_child = mux::fork_child,
};

} // namespace vma::sock
