// SPDX-License-Identifier: BSD-2-Clause
// Copies between this process's private memory and a peer's with one copy by the kernel (process_vm_readv and
// process_vm_writev). Whether the kernel allows it between two processes is found out by connection management.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/types.h>
#include <sys/uio.h>

#include "local/layout.hpp"

namespace vma::local {

enum class CmaDirection { read, write };

// A number in a peer's memory, at a place that it has named. The peer takes it away before its memory is the program's
// again.
struct CmaMark {
    std::uint64_t address;
    std::uint64_t number;
};

// Whose memory is meant. A process's number may be another one's once it has ended, and its memory another program's
// once it has called execve(2): so each copy is shown the mark.
struct CmaPeer {
    pid_t process = 0;
    CmaMark mark{};
};

// Reads `length` bytes from the mark on, of which it is the first word. Whether the kernel lets us read there, and it
// is there. Keeps errno.
bool cma_read_mark(const CmaPeer &peer, void *to, std::size_t length) noexcept;
bool cma_finds(const CmaPeer &peer) noexcept; // likewise, the mark alone

// A part of a list of buffers: `length` bytes from `offset` on. The number of elements of `out`, at most kIovLimit.
unsigned slice(const iovec *iov, unsigned count, std::uint64_t offset, std::uint64_t length, iovec *out) noexcept;

// Moves `length` bytes between ours and theirs, both long enough. 0, or a positive errno with an unknown part moved:
// ECONNRESET where the peer is gone, also if it was when only a part had been moved. What is read is the peer's for
// certain. Of what is written that is known a moment before: the process would have to end and its number to come round
// to another one between two system calls.
int cma_copy(CmaDirection direction, const CmaPeer &peer, const iovec *ours, unsigned our_count, const iovec *theirs,
             unsigned their_count, std::uint64_t length) noexcept;

// Between a flat buffer and `length` bytes from `offset` on of a list of buffers that is long enough.
void gather(std::byte *to, const iovec *iov, unsigned count, std::uint64_t offset, std::size_t length) noexcept;
void scatter(const iovec *iov, unsigned count, std::uint64_t offset, const std::byte *from,
             std::size_t length) noexcept;

} // namespace vma::local
