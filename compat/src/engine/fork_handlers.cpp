// SPDX-License-Identifier: BSD-2-Clause
// The fork handlers. Where the program's own pthread_atfork() goes past us, as it has opened the library at run time,
// we see none of the provider's either: ours are registered again behind them. A registration can't be withdrawn, so of
// two the one that a fork meets first does the work.
#include "compat/src/engine/fork_handlers.hpp"

#include <dlfcn.h>

#include <atomic>

#include "compat/src/config/log.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/retired.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/libc/vfork.hpp"
#include "compat/src/table/socket.hpp"

extern "C" [[gnu::visibility("hidden")]] void *__dso_handle;

namespace vma::sock {

constinit Mutex g_fork_gate;

namespace {

constexpr int kNobody = -1;

struct Fork {
    int by = kNobody;     // which registration the fork of this thread goes by
    unsigned count = 0;   // of the provider's handlers, when it began
    bool loading = false; // this thread loads the provider
};
[[gnu::tls_model("initial-exec")]] thread_local constinit Fork t_fork;

struct Handlers {
    ForkHandler prepare;
    ForkHandler parent;
    ForkHandler child;
};
constexpr unsigned kMostHandlers = 16;

// Written by the thread that loads the provider, but for `registered` and `again`. A fork goes by those handlers that
// there were when it began.
[[VMA_STARTUP_DATA]] constinit struct {
    std::atomic<bool> registered{false};
    std::atomic<bool> again{false};
    bool excludes_forks = false;
    std::atomic<unsigned> count{0};
    Handlers providers[kMostHandlers] = {};
} g_handlers;

void run(ForkHandler handler)
{
    if (handler != nullptr)
        handler();
}

// In the order of pthread_atfork(3): the last that came is the first before a fork, and the last after it.
void run_prepare()
{
    t_fork.count = g_handlers.count.load(std::memory_order_acquire);
    for (unsigned i = t_fork.count; i > 0; --i)
        run(g_handlers.providers[i - 1].prepare);
}

void run_after(ForkHandler Handlers::*which)
{
    for (unsigned i = 0; i < t_fork.count; ++i)
        run(g_handlers.providers[i].*which);
}

// Handlers that are registered last run first before a fork.
template <int kNumber> struct Registration {
    static void prepare()
    {
        if (t_fork.by != kNobody)
            return;
        t_fork.by = kNumber;
        fork_begins();
        run_prepare();
    }
    static void parent()
    {
        if (t_fork.by != kNumber)
            return;
        run_after(&Handlers::parent);
        fork_ends_in_parent();
        t_fork.by = kNobody;
    }
    static void child()
    {
        if (t_fork.by != kNumber)
            return;
        run_after(&Handlers::child);
        fork_ends_in_child();
        t_fork.by = kNobody;
    }
    // As pthread_atfork() does, which is code of libc's in this file, on a page of its own when a program starts.
    [[VMA_AT_STARTUP]] static void make() { libc::real.__register_atfork(&prepare, &parent, &child, &__dso_handle); }
};

// The library was opened at run time, or is a part of a test: libc's function is the first of the name.
bool registrations_pass_us()
{
    return ::dlsym(RTLD_DEFAULT, "__register_atfork") == reinterpret_cast<void *>(libc::real.__register_atfork);
}

} // namespace

void fork_comes()
{
    if (!t_fork.loading)
        wait_for_loads();
    return_before_fork();
}

void fork_is_over()
{
    const LockGuard guard(g_offload_lock);
    wake_for_retired();
}

void fork_begins()
{
    libc::in_vfork_child(); // forgets a vfork() that is over; the child's id would make it look like its child
    if (!t_fork.loading)
        wait_for_loads();
    return_all_shared_by_fork();
}

void clone_begins()
{
    {
        const LockGuard guard(g_offload_lock);
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
    if (!g_handlers.registered.exchange(true, std::memory_order_acq_rel))
        Registration<0>::make();
}

[[VMA_AT_STARTUP]] bool keep_fork_handlers(ForkHandler prepare, ForkHandler parent, ForkHandler child)
{
    if (!t_fork.loading)
        return false;
    const unsigned count = g_handlers.count.load(std::memory_order_relaxed);
    if (count == kMostHandlers) {
        VMA_LOG(kWarn,
                "the provider and the libraries that it needs register more than %u handlers of fork(); libc runs the "
                "others, before ours: a fork() may hang if one of them waits for a connection",
                kMostHandlers);
        return false;
    }
    g_handlers.providers[count] = {prepare, parent, child};
    g_handlers.count.store(count + 1, std::memory_order_release);
    return true;
}

void loading_provider(bool begins)
{
    register_fork_handlers(); // not while it is loaded: these are not the provider's
    if (begins && (g_handlers.excludes_forks = registrations_pass_us()))
        g_fork_gate.lock();
    t_fork.loading = begins;
    if (!begins && g_handlers.count.load(std::memory_order_relaxed) == 0 &&
        !g_handlers.again.exchange(true, std::memory_order_acq_rel))
        Registration<1>::make();
    if (!begins && g_handlers.excludes_forks)
        g_fork_gate.unlock();
}

} // namespace vma::sock
