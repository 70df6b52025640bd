// SPDX-License-Identifier: BSD-2-Clause
// Calls that put this process under a filter of system calls, by whichever of libc's functions.
#pragma once

namespace vma::intercept {

// Before syscall(SYS_seccomp, ...) with these arguments: what follows finds the kernel's sockets only.
void before_seccomp(unsigned operation, unsigned flags, const void *program);

// Likewise, of prctl().
void before_prctl(int option, unsigned long mode, const void *program);

} // namespace vma::intercept
