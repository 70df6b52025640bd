// SPDX-License-Identifier: BSD-2-Clause
// The fork handlers. A registration can't be withdrawn, so of two the one that a fork meets first does the work.
#include "compat/src/socket/fork_handlers.hpp"

#include <pthread.h>

#include <atomic>

#include "compat/src/config/log.hpp"
#include "compat/src/libc/vfork.hpp"
#include "compat/src/socket/socket.hpp"

namespace vma::sock {

constinit Mutex g_fork_gate;

namespace {

constexpr int kNobody = -1;

// Which registration the fork of this thread goes by.
[[gnu::tls_model("initial-exec")]] thread_local constinit int t_by = kNobody;

// Handlers that are registered last run first before a fork.
template <int kNumber> struct Registration {
    static void prepare()
    {
        if (t_by != kNobody)
            return;
        t_by = kNumber;
        fork_begins();
    }
    static void parent()
    {
        if (t_by != kNumber)
            return;
        fork_ends_in_parent();
        t_by = kNobody;
    }
    static void child()
    {
        if (t_by != kNumber)
            return;
        fork_ends_in_child();
        t_by = kNobody;
    }
    static void make() { ::pthread_atfork(&prepare, &parent, &child); }
};

} // namespace

void fork_begins()
{
    libc::in_vfork_child(); // forgets a vfork() that is over; the child's id would make it look like its child
    return_all_shared_by_fork();
}

void fork_ends_in_parent()
{
    after_fork_in_parent();
}

void fork_ends_in_child()
{
    after_fork_in_child();
    config::reopen_log_in_child();
}

void register_fork_handlers()
{
    static std::atomic<int> made{0};
    switch (made.fetch_add(1, std::memory_order_acq_rel)) {
    case 0:
        return Registration<0>::make();
    case 1:
        return Registration<1>::make();
    default:
        return; // a child of ours has its parent's handlers
    }
}

} // namespace vma::sock
