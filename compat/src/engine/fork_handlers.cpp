// SPDX-License-Identifier: BSD-2-Clause
// The fork handlers. Where the program's own pthread_atfork() goes past us, as it has opened the library at run time,
// we see none of the provider's either: ours are registered again behind them. A registration can't be withdrawn, so of
// two the one that a fork meets first does the work.
#include "compat/src/engine/fork_handlers.hpp"

#include <dlfcn.h>

#include <atomic>
#include <initializer_list>

#include "compat/src/config/log.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/retired.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/engine/this_thread.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/next_symbol.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/libc/vfork.hpp"
#include "compat/src/table/socket.hpp"

namespace vma::sock {

[[VMA_STARTUP_DATA]] constinit Forks g_forks;
[[gnu::tls_model("initial-exec")]] thread_local constinit EngineThread t_engine;

namespace {

void run(ForkHandler handler)
{
    if (handler != nullptr)
        handler();
}

// Whether they are the allocator's. One that was opened at run time may have been closed since, and libc would have
// forgotten them then.
[[VMA_AT_STARTUP]] bool are_allocators(const ForkHandlers &handlers)
{
    for (const ForkHandler one : {handlers.prepare, handlers.parent, handlers.child})
        if (one != nullptr)
            return libc::is_of_an_allocator(reinterpret_cast<const void *>(one));
    return false;
}

// In the order of pthread_atfork(3): the last that came is the first before a fork, and the last after it.
void run_prepare()
{
    t_engine.fork_count = g_forks.count.load(std::memory_order_acquire);
    for (unsigned i = t_engine.fork_count; i > 0; --i)
        run(g_forks.providers[i - 1].prepare);
    t_engine.fork_allocator =
        g_forks.allocator_kept.load(std::memory_order_acquire) && are_allocators(g_forks.allocator);
    if (t_engine.fork_allocator)
        run(g_forks.allocator.prepare);
}

void run_after(ForkHandler ForkHandlers::*which)
{
    if (t_engine.fork_allocator)
        run(g_forks.allocator.*which);
    for (unsigned i = 0; i < t_engine.fork_count; ++i)
        run(g_forks.providers[i].*which);
}

// ForkHandlers that are registered last run first before a fork.
template <int kNumber> struct Registration {
    static void prepare()
    {
        if (t_engine.fork_by != kNoRegistration)
            return;
        const libc::KeepErrno keep;
        libc::enter_critical(); // a handler that forks, or jumps, finds this one over
        t_engine.fork_by = kNumber;
        fork_begins();
        run_prepare();
    }
    static void parent()
    {
        if (t_engine.fork_by != kNumber)
            return;
        const libc::KeepErrno keep;
        run_after(&ForkHandlers::parent);
        fork_ends_in_parent();
        t_engine.fork_by = kNoRegistration;
        libc::leave_critical();
    }
    static void child()
    {
        if (t_engine.fork_by != kNumber)
            return;
        const libc::KeepErrno keep;
        run_after(&ForkHandlers::child);
        fork_ends_in_child();
        t_engine.fork_by = kNoRegistration;
        libc::leave_critical();
    }
    // As pthread_atfork() does, which is code of libc's in this file, on a page of its own when a program starts. With
    // no object whose end would be theirs: this library is not unloaded, and a destructor behind ours may fork.
    [[VMA_AT_STARTUP]] static void make() { libc::real.__register_atfork(&prepare, &parent, &child, nullptr); }
};

// The library was opened at run time, or is a part of a test: libc's function is the first of the name.
bool registrations_pass_us()
{
    return ::dlsym(RTLD_DEFAULT, "__register_atfork") == reinterpret_cast<void *>(libc::real.__register_atfork);
}

} // namespace

void fork_comes()
{
    const libc::KeepErrno keep;
    wait_for_loads();
    return_before_fork();
}

void fork_is_over()
{
    const LockGuard guard(g_offload.lock);
    wake_for_retired();
}

void fork_begins()
{
    libc::in_vfork_child(); // forgets a vfork() that is over; the child's id would make it look like its child
    wait_for_loads();
    return_all_shared_by_fork();
}

void clone_begins()
{
    const libc::KeepErrno keep;
    {
        const LockGuard guard(g_offload.lock);
        close_all_retired();
    }
    fork_begins();
}

void fork_ends_in_parent()
{
    after_fork_in_parent();
}

void fork_ends_in_child()
{
    after_fork_in_child();
    if (!sandboxed()) // whose files are not to be opened
        config::reopen_log_in_child();
    loading_after_fork_in_child();
}

[[VMA_AT_STARTUP]] void register_fork_handlers()
{
    if (!g_forks.registered.exchange(true, std::memory_order_acq_rel))
        Registration<0>::make();
}

[[VMA_AT_STARTUP]] bool keep_fork_handlers(ForkHandler prepare, ForkHandler parent, ForkHandler child)
{
    if (!t_engine.loading)
        return false;
    const unsigned count = g_forks.count.load(std::memory_order_relaxed);
    if (count == kMostForkHandlers) {
        VMA_LOG(kWarn,
                "the provider and the libraries that it needs register more than %u handlers of fork(); libc runs the "
                "others, before ours: a fork() may hang if one of them waits for a connection",
                kMostForkHandlers);
        return false;
    }
    g_forks.providers[count] = {prepare, parent, child};
    g_forks.count.store(count + 1, std::memory_order_release);
    return true;
}

[[VMA_AT_STARTUP]] bool keep_allocators_handlers(ForkHandler prepare, ForkHandler parent, ForkHandler child)
{
    const ForkHandlers handlers = {prepare, parent, child};
    if (g_forks.allocator_claimed.load(std::memory_order_relaxed) || !are_allocators(handlers) ||
        g_forks.allocator_claimed.exchange(true, std::memory_order_relaxed))
        return false;
    g_forks.allocator = handlers;
    g_forks.allocator_kept.store(true, std::memory_order_release);
    return true;
}

void loading_provider(bool begins)
{
    register_fork_handlers(); // not while it is loaded: these are not the provider's
    if (begins && (g_forks.excludes_forks = registrations_pass_us()))
        g_forks.gate.lock();
    t_engine.loading = begins;
    if (!begins && g_forks.count.load(std::memory_order_relaxed) == 0 &&
        !g_forks.again.exchange(true, std::memory_order_acq_rel))
        Registration<1>::make();
    if (!begins && g_forks.excludes_forks)
        g_forks.gate.unlock();
}

} // namespace vma::sock
