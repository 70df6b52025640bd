// SPDX-License-Identifier: BSD-2-Clause
// What the kernel has been given for a socket of this host and has not delivered yet. Usually it does both in the
// sender's call; where its softirq thread is behind, packets wait in a queue of the processor, for 10 ms and more.
#pragma once

#include <string_view>

namespace vma::sock::udp {

// Whether packets wait in such a queue of any processor, of whatever program. One file of /proc is read: some 10 us,
// more with many processors. False if it can't be read. errno may change. Thread-safe.
bool kernel_has_backlog();

// Likewise, of the text of /proc/net/softnet_stat: a line a processor of hexadecimal words, the twelfth is the length
// (Linux 5.10 and later; before, there is none).
bool tells_backlog(std::string_view text);

} // namespace vma::sock::udp
