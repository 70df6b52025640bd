// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/engine/engine.hpp"

#include <malloc.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "compat/src/base/oversubscription.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/sandbox_trial.hpp"
#include "compat/src/engine/tables.hpp"
#include "compat/src/libc/seccomp.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/stats/region.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

namespace {

void say(const libc::Seccomp &now, const char *refused)
{
    if (refused != nullptr)
        VMA_LOG(kInfo,
                "the filters of system calls (seccomp) that this process was started under refuse %s: all its sockets "
                "stay on the kernel",
                refused);
    else if (now.mode < 0)
        config::log_last_line(config::Level::kInfo,
                              "/proc/thread-self/status can't be read, where filters of system calls (seccomp) are "
                              "told of: all sockets of this process stay on the kernel");
    else
        config::log_last_line(config::Level::kInfo,
                              "this process is under a filter of system calls (seccomp) that it was not started "
                              "under: all its sockets stay on the kernel");
}

void begin_sandbox()
{
    g_process.sandboxed.store(true, std::memory_order_seq_cst);
    g_process.oversubscription.until.store(mux::kNoTurns, std::memory_order_release);
}

// What the library has taken of the heap, and has just given back, must not make the program's next malloc() or free()
// call the kernel: a filter may refuse brk(), which a program that needs little memory never comes to. So nothing is
// given back from here on, and there is some at hand.
void settle_heap()
{
    constexpr std::size_t kAtHand = std::size_t{120} * 1024; // less than what malloc() maps by itself
    ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
    void *volatile taken = ::malloc(kAtHand);
    ::free(taken);
}

bool look()
{
    const libc::Seccomp now = libc::seccomp_of_thread();
    if (now.mode == 0)
        return true;
    const bool inherited = now == g_engine_tables.sandbox.inherited && now.filters > 0;
    const char *const refused = inherited ? refused_call() : nullptr;
    if (inherited && refused == nullptr)
        return true;
    begin_sandbox();
    say(now, refused);
    return false;
}

} // namespace

void remember_inherited_filters()
{
    g_engine_tables.sandbox.inherited = libc::seccomp_of_thread();
}

bool filters_allow()
{
    if (sandboxed())
        return false;
    if (!g_engine_tables.sandbox.looked)
        g_engine_tables.sandbox.looked = look();
    return g_engine_tables.sandbox.looked;
}

bool meets_filter()
{
    constexpr std::uint32_t kFirst = 8;
    if (sandboxed())
        return true;
    const bool first = !g_engine_tables.sandbox.looked;
    if (!filters_allow())
        return true;
    ++g_engine_tables.sandbox.looks;
    return !first &&
           (g_engine_tables.sandbox.looks <= kFirst ||
            (g_engine_tables.sandbox.looks & (g_engine_tables.sandbox.looks - 1)) == 0) &&
           !look();
}

void stay_in_sandbox()
{
    pin_all("system call filter");
    kMultiplexers.leave_sets();
}

void leave_to_kernel(void (*give_back)())
{
    begin_sandbox();
    wait_for_loads();
    give_back();
}

void sandbox_comes(const char *how)
{
    const config::Level level = pool_size() != 0 ? config::Level::kInfo : config::Level::kDebug;
    if (config::log_enabled(level)) // the last line: what a log needs may be refused soon
        config::log_line(level, "%s: this process sets a filter of system calls: all its sockets stay on the kernel",
                         how);
    leave_to_kernel(stay_in_sandbox);
    engine_end();
    stats::give_up_file();
    if (pool_size() != 0)
        settle_heap();
}

bool may_forget(int fd)
{
    const Socket *const s = lookup(fd);
    return s == nullptr || (!offloaded(*s) && s->extra.load(std::memory_order_acquire) == nullptr);
}

} // namespace vma::sock
