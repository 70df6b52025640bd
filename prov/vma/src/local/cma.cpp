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

namespace {

constexpr std::uint64_t kAtOnce = std::uint64_t{1} << 30; // the kernel moves less than 2 GiB a call, with the mark

iovec place_of(const CmaMark &mark) noexcept
{
    return {reinterpret_cast<void *>(static_cast<std::uintptr_t>(mark.address)), sizeof mark.number};
}

// How many bytes were moved; 0 with errno. The mark is read behind the bytes by the same call, which has looked for the
// process once.
std::uint64_t read_some(const CmaPeer &peer, iovec *ours, unsigned our_count, iovec *theirs, unsigned their_count,
                        std::uint64_t length, std::uint64_t &seen) noexcept
{
    ours[our_count] = {&seen, sizeof seen};
    theirs[their_count] = place_of(peer.mark);
    const ssize_t moved = ::process_vm_readv(peer.process, ours, our_count + 1, theirs, their_count + 1, 0);
    if (moved < 0)
        return 0;
    const auto bytes = static_cast<std::uint64_t>(moved);
    if (bytes < length && bytes != 0)
        return bytes; // the rest is another call's, and what that one finds is true of this one
    errno = bytes == 0 ? EFAULT : ECONNRESET;
    return bytes == length + sizeof seen && seen == peer.mark.number ? length : 0;
}

std::uint64_t write_some(const CmaPeer &peer, const iovec *ours, unsigned our_count, const iovec *theirs,
                         unsigned their_count) noexcept
{
    errno = ECONNRESET;
    if (!cma_finds(peer))
        return 0;
    errno = EFAULT;
    const ssize_t moved = ::process_vm_writev(peer.process, ours, our_count, theirs, their_count, 0);
    return moved < 0 ? 0 : static_cast<std::uint64_t>(moved);
}

} // namespace

bool cma_read_mark(const CmaPeer &peer, void *to, std::size_t length) noexcept
{
    const int saved = errno;
    const iovec ours{to, length};
    const iovec theirs{place_of(peer.mark).iov_base, length};
    const bool found = peer.process > 0 &&
                       ::process_vm_readv(peer.process, &ours, 1, &theirs, 1, 0) == static_cast<ssize_t>(length) &&
                       std::memcmp(to, &peer.mark.number, sizeof peer.mark.number) == 0;
    errno = saved;
    return found;
}

bool cma_finds(const CmaPeer &peer) noexcept
{
    std::uint64_t seen = 0;
    return cma_read_mark(peer, &seen, sizeof seen);
}

int cma_copy(CmaDirection direction, const CmaPeer &peer, const iovec *ours, unsigned our_count, const iovec *theirs,
             unsigned their_count, std::uint64_t length) noexcept
{
    const int saved = errno;
    int error = 0;
    std::uint64_t seen = 0; // where the mark is read to
    for (std::uint64_t done = 0; done < length;) {
        iovec here[kIovLimit + 1];
        iovec there[kIovLimit + 1];
        const std::uint64_t step = std::min(length - done, kAtOnce);
        const unsigned here_count = slice(ours, our_count, done, step, here);
        const unsigned there_count = slice(theirs, their_count, done, step, there);
        const std::uint64_t moved = direction == CmaDirection::read
                                        ? read_some(peer, here, here_count, there, there_count, step, seen)
                                        : write_some(peer, here, here_count, there, there_count);
        if (moved == 0) {
            error = cma_finds(peer) ? errno : ECONNRESET;
            break;
        }
        done += moved;
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
