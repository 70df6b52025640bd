// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/intercept/sandboxed_wait.hpp"

#include <algorithm>

#include "compat/src/intercept/export.hpp"
#include "compat/src/intercept/sets.hpp"
#include "compat/src/sharing/leftovers.hpp"

namespace vma::intercept {

namespace {

constexpr int kMostSelected = 1 << 16; // descriptors looked at
constexpr int kMostUnread = 64; // that are told of in one call: a sandboxed process may have no memory but its stack's

bool has_unread(int fd)
{
    const sock::Socket *const s = tracked(fd);
    return s != nullptr && sock::is_offloaded(*s) && sock::holds_leftovers(*s);
}

// What can't be read is the kernel's to refuse.
bool wants_unread(const pollfd &p)
{
    const int fd = libc::faults_are_caught() ? libc::load_or(p.fd, -1) : p.fd;
    return fd >= 0 && (p.events & POLLIN) != 0 && has_unread(fd);
}

} // namespace

int poll_beside_unread(pollfd *fds, nfds_t count, int (*wait)(const void *call, bool at_once), const void *call)
{
    const bool any = std::any_of(fds, fds + count, wants_unread);
    int n = wait(call, any);
    for (nfds_t i = 0; any && n >= 0 && i < count; ++i) {
        if (!wants_unread(fds[i]))
            continue;
        n += fds[i].revents == 0 ? 1 : 0;
        fds[i].revents = static_cast<short>(fds[i].revents | (fds[i].events & (POLLIN | POLLRDNORM)));
    }
    return n;
}

int select_beside_unread(int count, fd_set *in, int (*wait)(const void *call, bool at_once), const void *call)
{
    constexpr int kBits = static_cast<int>(sizeof(unsigned long) * 8);
    auto *const words = reinterpret_cast<unsigned long *>(in); // an fd_set may be longer than its type
    const int most = in != nullptr ? std::min(count, kMostSelected) : 0;
    int unread[kMostUnread]; // those of `in`, before the kernel overwrites them
    int found = 0;
    for (int fd = 0; fd < most && found < kMostUnread; ++fd) {
        const unsigned long word = libc::faults_are_caught() ? word_of(in, fd / kBits) : words[fd / kBits];
        if ((word & 1UL << fd % kBits) != 0 && has_unread(fd))
            unread[found++] = fd;
    }
    int n = wait(call, found != 0);
    for (int i = 0; n >= 0 && i < found; ++i) {
        unsigned long &word = words[unread[i] / kBits];
        const unsigned long bit = 1UL << unread[i] % kBits;
        n += (word & bit) == 0 ? 1 : 0;
        word |= bit;
    }
    return n;
}

} // namespace vma::intercept
