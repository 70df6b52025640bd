// SPDX-License-Identifier: BSD-2-Clause
// Calls that put this process under a filter of system calls, by whichever of libc's functions.
#pragma once

#include <atomic>

namespace vma::intercept {

// Has `leave` give all to the kernel, once; `how` is what the program has called. Who comes second waits until it is
// `done`. Not in a child of vfork().
void leave_once(std::atomic<bool> &done, const char *how, void (*leave)(const char *how));

// Before syscall(SYS_seccomp, ...) with these arguments: what follows finds the kernel's sockets only.
void before_seccomp(unsigned operation, unsigned flags, const void *program);

// Likewise, of prctl().
void before_prctl(int option, unsigned long mode, const void *program);

} // namespace vma::intercept
