// SPDX-License-Identifier: BSD-2-Clause
// Is a descriptor of ours among those that a poll() or select() names? Nothing of what the program gave is looked at
// before the process has had a socket: until then nothing that it names can concern us, an epoll set neither, and no
// fault of ours would be caught.
#pragma once

#include <poll.h>
#include <sys/select.h>

#include "compat/src/base/spin_mask.hpp"
#include "compat/src/intercept/export.hpp"
#include "compat/src/libc/fault.hpp"

namespace vma::intercept {

// Inlined, and what follows if there is one is not: a poll() of others' descriptors saves no register for us.
[[gnu::always_inline]] inline bool any_ours(const pollfd *fds, nfds_t count)
{
    if (fds == nullptr || count > static_cast<nfds_t>(sock::kMaxTracked) || !libc::faults_are_caught())
        return false;
    for (nfds_t i = 0; i < count; ++i)
        if (ours(libc::load_or(fds[i].fd, -1))) [[unlikely]]
            return true;
    return false;
}

inline unsigned long word_of(const fd_set *set, int index)
{
    return set != nullptr ? static_cast<unsigned long>(libc::load_or(set->fds_bits[index], 0L)) : 0;
}

inline bool any_ours(int count, const fd_set *in, const fd_set *out, const fd_set *err)
{
    if (count <= 0 || count > sock::kMaxTracked || !libc::faults_are_caught())
        return false;
    constexpr int kBits = static_cast<int>(sizeof(unsigned long) * 8);
    for (int index = 0; index * kBits < count; ++index) {
        unsigned long word = word_of(in, index) | word_of(out, index) | word_of(err, index);
        for (; word != 0; word &= word - 1) {
            const int fd = index * kBits + __builtin_ctzl(word);
            if (fd < count && ours(fd)) [[unlikely]]
                return true;
        }
    }
    return false;
}

// ---- once it is known that a call concerns us
//
// Are its time and its mask there, and a time at all? If not, the kernel refuses them.

inline bool valid(const timespec *timeout)
{
    return timeout == nullptr || (libc::can_read(timeout, sizeof *timeout) && timeout->tv_sec >= 0 &&
                                  timeout->tv_nsec >= 0 && timeout->tv_nsec < 1000000000);
}

inline bool valid(const timeval *timeout)
{
    return timeout == nullptr ||
           (libc::can_read(timeout, sizeof *timeout) && timeout->tv_sec >= 0 && timeout->tv_usec >= 0);
}

inline bool valid(const sigset_t *mask)
{
    return mask == nullptr || libc::can_read(mask, mux::kMaskBytes);
}

} // namespace vma::intercept
