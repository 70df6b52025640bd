// SPDX-License-Identifier: BSD-2-Clause
// What the kernel says that went by it on a stream since it was connected. Whoever moved it, in this process or another one, is in it.
#pragma once

namespace vma::sock {

class Socket;

// Makes s.tx.kernel_bytes and s.rx.kernel_bytes what the kernel has counted. False: it doesn't tell, or bytes are on their way this
// moment; nothing has changed then. No call of ours may be in the kernel on it, or it is false too. Some system calls.
bool take_kernel_counts(Socket &s);

} // namespace vma::sock
