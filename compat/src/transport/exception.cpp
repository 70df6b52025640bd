// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/transport/exception.hpp"
#include "compat/src/engine/engine.hpp"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>

#include "compat/src/base/probes.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

namespace {

// The manual's numbers.
enum Handling : std::int32_t { kFallBack = 0, kFallBackLoudly = 1, kRefuse = 2, kAbort = 3 };

constexpr int kExitStatus = 255; // as VMA's exit(-1)

constexpr unsigned long kControls[] = {FIONREAD, FIONBIO, FIOCLEX, FIONCLEX, SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK, TCGETS};

constexpr int kCommands[] = {F_GETFD,         F_SETFD,  F_GETFL,  F_SETFL,     F_DUPFD,
                             F_DUPFD_CLOEXEC, F_GETOWN, F_GETSIG, F_GETOWN_EX, F_GET_SEALS};

template <typename List, typename Value> bool has(const List &list, Value value)
{
    return std::find(std::begin(list), std::end(list), value) != std::end(list);
}

void say(config::Level level, const Socket &s, const char *call, const char *reason, const char *then)
{
    char name[kNameMax];
    if (config::log_enabled(level))
        config::log_line(level, "%s: %s: %s: %s", connection_name(s, name), call,
                         reason != nullptr ? reason : "not known for accelerated sockets", then);
}

} // namespace

void refuse_offload(Socket &s, const char *reason)
{
    using config::Level;
    const std::int32_t mode = config::params().exception_handling;
    constexpr const char *kCall = "it can't be accelerated";
    if (mode == kAbort) {
        say(Level::kPanic, s, kCall, reason, "the process is aborted (VMA_EXCEPTION_HANDLING)");
        ::abort();
    }
    if (mode != kRefuse) {
        stay_on_kernel(s, reason);
        if (mode == kFallBackLoudly)
            say(Level::kError, s, kCall, reason, "the socket stays on the kernel");
        return;
    }
    say(Level::kError, s, kCall, reason, "its next call fails (VMA_EXCEPTION_HANDLING)");
    probe::fallback(s.any_fd.load(std::memory_order_relaxed), reason, false);
    s.kernel_reason = reason;
    s.pinned = true; // and stays kernel-only: calls on such a one look for an error to tell
    s.pending_error.store(EINVAL, std::memory_order_relaxed);
    tell_way(s);
}

bool admit_call(Socket &s, const char *call, const char *reason, Heir heir)
{
    using config::Level;
    const std::int32_t mode = config::params().exception_handling;
    if (s.mode.load(std::memory_order_acquire) == Mode::kKernel)
        return true; // it is the kernel's already
    if (mode == kRefuse) {
        say(Level::kError, s, call, reason, "it fails (VMA_EXCEPTION_HANDLING)");
        errno = EINVAL;
        return false;
    }
    if (mode == kAbort) {
        say(Level::kPanic, s, call, reason, "the process is aborted (VMA_EXCEPTION_HANDLING)");
        ::abort();
    }
    const bool falls_back = reason != nullptr || mode == kFallBack || mode == kFallBackLoudly;
    if (mode == kFallBackLoudly || reason == nullptr)
        say(mode == kFallBackLoudly ? Level::kError : Level::kDebug, s, call, reason,
            falls_back ? "the socket goes back to the kernel" : "the kernel's socket gets it");
    if (falls_back && reason == nullptr)
        pin_to_kernel(s, "a call that the library does not know", heir);
    else if (falls_back)
        pin_to_kernel(s, reason, heir);
    return true;
}

bool is_known_control(unsigned long request)
{
    constexpr unsigned long kInterfaces[] = {SIOCGIFNAME,  SIOCGIFHWADDR, SIOCGIFMTU,     SIOCGIFCONF,    SIOCGIFADDR,
                                             SIOCGIFFLAGS, SIOCGIFINDEX,  SIOCGIFNETMASK, SIOCGIFBRDADDR, SIOCETHTOOL};
    return has(kControls, request) || has(kInterfaces, request); // the latter ask nothing of the socket
}

bool is_known_command(int command)
{
    return has(kCommands, command);
}

bool is_hint(int level, int name)
{
    return level == SOL_SOCKET &&
           (name == SO_PRIORITY || name == SO_BUSY_POLL || name == SO_PREFER_BUSY_POLL || name == SO_BUSY_POLL_BUDGET);
}

void refuse_without_engine(Socket &s)
{
    if (engine_has_failed())
        refuse_offload(s, "the provider is not available");
}

void start_or_exit()
{
    if (loaded(Part::kProvider) == Loaded::kNotYet)
        load_what_is_wanted(Patience::kWaits);
    {
        const LockGuard guard(g_offload.lock);
        if (engine_start() || !engine_has_failed()) // where another thread is in the loader's way it is started later
            return;
    }
    if (process_is_ending())
        return;
    VMA_LOG(kError, "the library can't start: the process ends (VMA_EXCEPTION_HANDLING)");
    ::exit(kExitStatus);
}

} // namespace vma::sock
