// SPDX-License-Identifier: BSD-2-Clause
// The fork handlers. Where the program's own pthread_atfork() goes past us, as it has opened the library at run time, we see none of the
// provider's either: ours are registered again behind them. A registration can't be withdrawn, so of two the one that a
// fork meets first does the work.
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

struct Handlers {
    ForkHandler prepare;
    ForkHandler parent;
    ForkHandler child;
};
constinit Handlers g_providers = {};
constinit std::atomic<bool> g_has_providers{false};
[[gnu::tls_model("initial-exec")]] thread_local constinit bool t_loading = false;

// The provider's, if they are ours to run.
void run_providers(ForkHandler Handlers::*which)
{
    if (const ForkHandler handler = g_providers.*which;
        g_has_providers.load(std::memory_order_acquire) && handler != nullptr)
        handler();
}

// Handlers that are registered last run first before a fork.
template <int kNumber> struct Registration {
    static void prepare()
    {
        if (t_by != kNobody)
            return;
        t_by = kNumber;
        fork_begins();
        run_providers(&Handlers::prepare);
    }
    static void parent()
    {
        if (t_by != kNumber)
            return;
        run_providers(&Handlers::parent);
        fork_ends_in_parent();
        t_by = kNobody;
    }
    static void child()
    {
        if (t_by != kNumber)
            return;
        run_providers(&Handlers::child);
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
    static constinit std::atomic<bool> made{false};
    if (!made.exchange(true, std::memory_order_acq_rel))
        Registration<0>::make();
}

bool keep_fork_handlers(ForkHandler prepare, ForkHandler parent, ForkHandler child)
{
    if (!t_loading || g_has_providers.load(std::memory_order_relaxed))
        return false;
    g_providers = {prepare, parent, child};
    g_has_providers.store(true, std::memory_order_release);
    return true;
}

void loading_provider(bool begins)
{
    static constinit std::atomic<bool> again{false};
    register_fork_handlers(); // not while it is loaded: these are not the provider's
    t_loading = begins;
    if (!begins && !g_has_providers.load(std::memory_order_relaxed) && !again.exchange(true, std::memory_order_acq_rel))
        Registration<1>::make();
}

} // namespace vma::sock
