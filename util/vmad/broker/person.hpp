// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "request.hpp"

namespace vma::guard {

// Who has connected to this UNIX-domain socket. The control group is unknown where the process is gone, or the kernel
// doesn't say which process it was (before Linux 6.5): a number alone may be another process's by now. False: nothing
// is known.
bool identify(int socket, Person &out);

} // namespace vma::guard
