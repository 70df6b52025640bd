// SPDX-License-Identifier: BSD-2-Clause
// Whether the filters of system calls that this process was started under (those of a container, of a service manager)
// let acceleration be: nobody can read them, so all calls that it makes are tried in a child.
#pragma once

namespace vma::sock {

// The first call that they refuse, or nullptr; tried once. Offload lock held. The child shares the memory and nothing
// else, gives no signal when it ends, and the calling thread stands still meanwhile, some 100 us; what its filters do
// to it they do to it alone.
const char *refused_call();

} // namespace vma::sock
