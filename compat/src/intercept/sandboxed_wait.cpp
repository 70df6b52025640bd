// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/intercept/sandboxed_wait.hpp"

#include <algorithm>

#include "compat/src/intercept/export.hpp"
#include "compat/src/socket/stash.hpp"

namespace vma::intercept {

namespace {

bool has_unread(int fd)
{
    const sock::Socket *const s = tracked(fd);
    return s != nullptr && sock::is_dual(*s) && sock::holds_stash(*s);
}

bool wants_unread(const pollfd &p)
{
    return (p.events & POLLIN) != 0 && has_unread(p.fd);
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
    fd_set unread;
    FD_ZERO(&unread);
    bool any = false;
    for (int fd = 0; in != nullptr && fd < std::min(count, FD_SETSIZE); ++fd) {
        if (!FD_ISSET(fd, in) || !has_unread(fd))
            continue;
        FD_SET(fd, &unread);
        any = true;
    }
    int n = wait(call, any);
    for (int fd = 0; any && n >= 0 && fd < std::min(count, FD_SETSIZE); ++fd) {
        if (!FD_ISSET(fd, &unread) || FD_ISSET(fd, in))
            continue;
        FD_SET(fd, in);
        ++n;
    }
    return n;
}

} // namespace vma::intercept
