// SPDX-License-Identifier: BSD-2-Clause
// poll() and select() under a filter of system calls: the program's own call and no other, and what is left unread in
// memory (doc/sandboxes.md). Epoll sets need nothing here: mux/ waits in the program's own set.
#pragma once

#include <poll.h>
#include <sys/select.h>
#include <time.h>

namespace vma::intercept {

// `wait(call, at_once)` is the program's call: with its own time, or with none. Their result is the program's.
int poll_beside_unread(pollfd *fds, nfds_t count, int (*wait)(const void *call, bool at_once), const void *call);
int select_beside_unread(int count, fd_set *in, int (*wait)(const void *call, bool at_once), const void *call);

// The same, where `wait(at_once)` is a lambda.
template <typename Wait> int poll_in_sandbox(pollfd *fds, nfds_t count, const Wait &wait)
{
    return poll_beside_unread(
        fds, count, [](const void *call, bool at_once) { return (*static_cast<const Wait *>(call))(at_once); }, &wait);
}

template <typename Wait> int select_in_sandbox(int count, fd_set *in, const Wait &wait)
{
    return select_beside_unread(
        count, in, [](const void *call, bool at_once) { return (*static_cast<const Wait *>(call))(at_once); }, &wait);
}

} // namespace vma::intercept
