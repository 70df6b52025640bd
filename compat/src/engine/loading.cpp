// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/loading.hpp"

#include <errno.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "compat/src/base/clock.hpp"
#include "compat/src/base/sandboxed.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/fork_handlers.hpp"
#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/provider.hpp"
#include "compat/src/engine/tables.hpp"
#include "compat/src/engine/this_thread.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/futex.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/libc/vfork.hpp"
#include "compat/src/libc/when_left.hpp"

namespace vma::sock {

[[VMA_STARTUP_DATA]] constinit Loading g_loading = {
    .by_part = {{load_provider, "the provider was being loaded when the process was copied by fork(); all connections "
                                "of the copy stay on the kernel"},
                {open_rdma_libraries, "rdma-core was being loaded when the process was copied by fork(); connections "
                                      "of the copy to other hosts stay on the kernel"}},
};

namespace {

enum : std::uint32_t { kUntried, kWanted, kLoading, kOpening, kTried, kLost };
static_assert(kUntried == 0, "what Load::state begins with");

Load &load_of(Part part)
{
    return g_loading.by_part[static_cast<std::size_t>(part)];
}

// What all who want the provider do next takes as long as loading it. One who comes before us does it himself. Filters
// of system calls have been looked at by the one who wanted it, or are in engine_start() where nobody has yet
// (start_or_exit()): this thread has those of the thread that began it. Who sets one later waits for us
// (sandbox_comes()), and where that was before we came here nothing is opened.
void open_engine()
{
    if (process_is_ending())
        return;
    if (!g_offload.lock.try_lock())
        return;
    if (g_forks.gate.try_lock()) {
        g_engine_tables.stack.run([] { (void)engine_start(); });
        g_forks.gate.unlock();
    }
    g_offload.lock.unlock();
}

void *load(void *wanted)
{
    Load &l = *static_cast<Load *>(wanted);
    t_engine.is_loader = true;
    l.run();
    std::uint32_t at = kLoading;
    if (!l.state.compare_exchange_strong(at, kOpening, std::memory_order_acq_rel))
        return nullptr; // a constructor has forked, and this is the copy, where it is lost
    if (&l == &load_of(Part::kProvider))
        open_engine();
    t_engine.is_loader = false;
    g_loading.threads.fetch_sub(1, std::memory_order_release);
    l.state.store(kTried, std::memory_order_release);
    libc::futex_wake(l.state);
    return nullptr;
}

bool start_loader(Load &l)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    const bool started = start_quiet_thread(l.thread, attributes, load, &l) == 0;
    pthread_attr_destroy(&attributes);
    if (started)
        l.to_join.store(true, std::memory_order_release);
    return started;
}

// A thread that ends frees memory: who forks in that moment may leave the allocator locked in the child.
void join_loader(Load &l)
{
    if (!l.to_join.exchange(false, std::memory_order_acquire))
        return;
    const libc::NotCancelled wait;
    ::pthread_join(l.thread, nullptr);
}

// The same where nobody waits for that: a later call tries again.
void join_if_it_has_ended(Load &l)
{
    if (!l.to_join.load(std::memory_order_relaxed) || !l.to_join.exchange(false, std::memory_order_acquire))
        return;
    if (::pthread_tryjoin_np(l.thread, nullptr) != 0)
        l.to_join.store(true, std::memory_order_release);
}

bool is_at_it(std::uint32_t state)
{
    return state == kLoading || state == kOpening;
}

// False: it is still at it, and who waits once waits for it no more.
bool is_over_soon(Load &l)
{
    const std::int64_t until = mux::now_ns() + g_loading.patience_ns;
    for (std::uint32_t state; is_at_it(state = l.state.load());) {
        const std::int64_t left = until - mux::now_ns();
        if (left <= 0) {
            l.is_slow.store(true, std::memory_order_relaxed);
            return false;
        }
        const timespec limit = mux::to_timespec(left);
        libc::futex_wait(l.state, state, &limit);
    }
    return true;
}

bool wait_for_a_while(Load &l)
{
    if (!is_over_soon(l))
        return false;
    join_loader(l);
    return true;
}

void exit_begins()
{
    if (!libc::in_vfork_child() && !sandboxed()) // whose memory is its parent's; which may not wait
        end_loads();
}

// exit() waits for a load before any object's destructors: glibc takes an object whose destructors have begun for one
// that was never set up, and where the loading thread comes to it, as to what a new library needs, it runs that
// object's constructors once more. (One that is begun in constructors before main(), or in destructors, is waited for
// in ours.) With the gate, as libc has a lock for that, which a child of fork() would never get.
bool exit_is_to_wait()
{
    if (process_is_ending() || !g_forks.gate.try_lock())
        return false;
    const bool waits = std::atexit(exit_begins) == 0;
    g_forks.gate.unlock();
    return waits;
}

// False: nobody wants it, another thread does it, or the process ends.
bool begin_loading(Load &l)
{
    const libc::Stretch stretch; // a handler that jumps finds it begun
    const libc::KeepErrno keep;
    std::uint32_t wanted = kWanted;
    if (l.state.load(std::memory_order_relaxed) != kWanted || !exit_is_to_wait() ||
        !l.state.compare_exchange_strong(wanted, kLoading))
        return false;
    if (process_is_ending()) { // and has perhaps not seen it
        l.state.store(kWanted);
        libc::futex_wake(l.state);
        return false;
    }
    g_loading.threads.fetch_add(1, std::memory_order_relaxed);
    if (!start_loader(l))
        load(&l); // no thread is to be had: whoever is in the loader's way now has to go out of it
    return true;
}

bool load_if_wanted(Load &l, Patience patience)
{
    const int saved = errno;
    if (!begin_loading(l)) {
        if (l.state.load(std::memory_order_acquire) == kTried)
            join_if_it_has_ended(l);
        return false;
    }
    const bool done =
        patience == Patience::kGoesOn ? !is_at_it(l.state.load(std::memory_order_acquire)) : wait_for_a_while(l);
    if (!done && patience == Patience::kWaits)
        VMA_LOG(kDebug, "a library is not loaded yet, as another thread opens one: connections are accelerated when it "
                        "is");
    errno = saved;
    return done;
}

} // namespace

Loaded loaded(Part part)
{
    Load &l = load_of(part);
    std::uint32_t state = l.state.load(std::memory_order_acquire);
    if (state == kUntried)
        l.state.compare_exchange_strong(state, kWanted, std::memory_order_relaxed);
    if (state == kLost)
        return Loaded::kLost;
    return state == kTried || state == kOpening ? Loaded::kTried : Loaded::kNotYet;
}

bool load_what_is_wanted(Patience patience)
{
    bool any = false;
    for (Load &l : g_loading.by_part)
        any = load_if_wanted(l, patience) || any;
    return any;
}

Patience patience_asked_for()
{
    return config::params().opens_early ? Patience::kWaits : Patience::kGoesOn;
}

bool is_loaded(Part part)
{
    return load_of(part).state.load(std::memory_order_acquire) >= kOpening;
}

bool is_loading(Part part)
{
    return is_at_it(load_of(part).state.load(std::memory_order_relaxed));
}

void wait_for_loads()
{
    if (t_engine.is_loader)
        return;
    for (Load &l : g_loading.by_part)
        wait_for_a_while(l);
}

bool process_is_ending()
{
    return g_loading.ends.load();
}

void end_loads()
{
    const bool again = g_loading.ends.exchange(true);
    if (t_engine.is_loader)
        return;
    for (Load &l : g_loading.by_part)
        if (!again || !l.is_slow.load(std::memory_order_relaxed))
            wait_for_a_while(l);
}

void wait_once_for_loads()
{
    const libc::KeepErrno keep;
    if (t_engine.is_loader || libc::in_vfork_child()) // whose numbers are its own
        return;
    for (Load &l : g_loading.by_part)
        if (!l.is_slow.load(std::memory_order_relaxed))
            (void)is_over_soon(l);
}

bool is_loading_still(Patience patience)
{
    if (!is_loading(Part::kProvider))
        return false;
    if (patience == Patience::kWaits)
        wait_once_for_loads();
    return is_loading(Part::kProvider);
}

void loading_after_fork_in_child()
{
    g_loading.threads.store(0, std::memory_order_relaxed);
    g_loading.ends.store(false); // a handler of exit() may have forked
    t_engine.is_loader = false;
    for (Load &l : g_loading.by_part) {
        std::uint32_t state = kLoading;
        l.to_join.store(false, std::memory_order_relaxed);
        if (l.state.compare_exchange_strong(state, kLost, std::memory_order_relaxed))
            VMA_LOG(kWarn, "%s", l.what_is_lost);
        else if (state == kOpening) // a fork has waited for the gate, or for the offload lock: nothing was half open
            l.state.store(kTried, std::memory_order_relaxed);
    }
}

} // namespace vma::sock
