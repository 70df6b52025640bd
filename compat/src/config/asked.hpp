// SPDX-License-Identifier: BSD-2-Clause
// Who has brought the library into this process: somebody who wants it here, or the machine's /etc/ld.so.preload.
#pragma once

namespace vma::config {

// LD_PRELOAD names it, the program is linked with it, or has opened it. What /etc/ld.so.preload brings says nothing of
// its own accord, as each line would be in the output of whatever script runs a program.
bool is_asked_for();

// Opened at run time: what the program calls of libc is libc's, but for what it looks up in us.
bool is_opened();

} // namespace vma::config
