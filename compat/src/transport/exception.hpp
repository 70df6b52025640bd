// SPDX-License-Identifier: BSD-2-Clause
// VMA_EXCEPTION_HANDLING: calls on a socket that acceleration has no part in, sockets that were to be accelerated and
// can't be, and a library that can't start.
#pragma once

#include "compat/src/table/socket.hpp"

namespace vma::sock {

// A call that only the kernel can do, because of `reason` (of those in man/libvma.7), or that the library does not know
// (nullptr); `call` is for the log. True: the kernel's socket is to get it now. False: it fails, with errno set.
// May not return. No lock is held.
bool admit_call(Socket &s, const char *call, const char *reason, Heir heir = Heir::kAnybody);

// The socket was to be accelerated, and something that is needed for it failed: it stays on the kernel, for `reason`;
// or the program's next call on it fails with EINVAL. May not return. The offload lock is held.
void refuse_offload(Socket &s, const char *reason);
void refuse_without_engine(Socket &s); // after engine_start(), unless the provider is still to be loaded

bool admit_option(Socket &s, int level, int name, const char *reason, Heir heir); // setsockopt(); control.cpp

bool is_known_control(unsigned long request); // ioctl()
bool is_known_command(int command);           // fcntl()

// Privileges that the program lacks for an option that is a hint to the kernel only: VMA_ALLOW_PRIVILEGED_SOCK_OPT.
bool is_hint(int level, int name);

inline constexpr int kExitUnlessStarted = -2; // a mode

void start_or_exit(); // with that one, when the first socket is made; no lock is held

} // namespace vma::sock
