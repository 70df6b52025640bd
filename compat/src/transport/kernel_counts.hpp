// SPDX-License-Identifier: BSD-2-Clause
// How many bytes of a connection the kernel has carried, by its own count, whoever moved them: what the library's sums
// are held against before a span begins (doc/stream-protocol.md, "The kernel says K").
#pragma once

#include <cstdint>

namespace vma::sock {

class Stream;

// Bytes that programs gave the kernel to send, or took from it, since the connection was made. Exact at a moment
// between call and return. False: the kernel doesn't tell (any more), as of a connection that was reset, or part of it
// went by an Ethernet port. Each is three system calls; errno may change.
bool kernel_sent(const Stream &s, std::uint64_t &bytes);
bool kernel_read(const Stream &s, std::uint64_t &bytes);

// True also where the kernel doesn't tell. Two system calls where they agree and nothing is on its way. `bytes`: what
// the library itself has counted of calls that are over, so no more than there were.
bool kernel_agrees_on_sent(const Stream &s, std::uint64_t bytes);
bool kernel_agrees_on_read(const Stream &s, std::uint64_t bytes);

// They disagree: the stream stays on the kernel, and the log says so. Any lock may be held.
void note_uncounted(Stream &s);

// The counts of a kernel-only socket, which this process holds alone, are the kernel's from now on; false: bytes may
// have been under way in a direction, which a later call counts. Offload lock held.
bool take_kernel_counts(Stream &s);

} // namespace vma::sock
