// SPDX-License-Identifier: BSD-2-Clause
// Walking two lists of buffers at once, in our memory or through the kernel.
#include "local/cma.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace vma::local {

unsigned slice(const iovec *iov, unsigned count, std::uint64_t offset, std::uint64_t length, iovec *out) noexcept
{
    unsigned used = 0;
    for (unsigned i = 0; i < count && length; ++i) {
        if (offset >= iov[i].iov_len) {
            offset -= iov[i].iov_len;
            continue;
        }
        const std::size_t part = std::min<std::uint64_t>(iov[i].iov_len - offset, length);
        out[used++] = {static_cast<std::byte *>(iov[i].iov_base) + offset, part};
        offset = 0;
        length -= part;
    }
    return used;
}

int cma_copy(CmaDirection direction, pid_t peer, const iovec *ours, unsigned our_count, const iovec *theirs,
             unsigned their_count, std::uint64_t length) noexcept
{
    const int saved = errno;
    std::uint64_t done = 0;
    int error = 0;
    while (done < length) {
        iovec here[kIovLimit];
        iovec there[kIovLimit];
        const unsigned here_count = slice(ours, our_count, done, length - done, here);
        const unsigned there_count = slice(theirs, their_count, done, length - done, there);
        const ssize_t moved = direction == CmaDirection::read
                                  ? ::process_vm_readv(peer, here, here_count, there, there_count, 0)
                                  : ::process_vm_writev(peer, here, here_count, there, there_count, 0);
        if (moved <= 0) {
            error = moved < 0 ? errno : EFAULT;
            break;
        }
        done += static_cast<std::uint64_t>(moved);
    }
    errno = saved;
    return error;
}

void gather(std::byte *to, const iovec *iov, unsigned count, std::uint64_t offset, std::size_t length) noexcept
{
    iovec parts[kIovLimit];
    const unsigned used = slice(iov, count, offset, length, parts);
    for (unsigned i = 0; i < used; ++i) {
        std::memcpy(to, parts[i].iov_base, parts[i].iov_len);
        to += parts[i].iov_len;
    }
}

void scatter(const iovec *iov, unsigned count, std::uint64_t offset, const std::byte *from, std::size_t length) noexcept
{
    iovec parts[kIovLimit];
    const unsigned used = slice(iov, count, offset, length, parts);
    for (unsigned i = 0; i < used; ++i) {
        std::memcpy(parts[i].iov_base, from, parts[i].iov_len);
        from += parts[i].iov_len;
    }
}

} // namespace vma::local
