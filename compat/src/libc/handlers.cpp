// SPDX-License-Identifier: BSD-2-Clause
// The trampoline in front of signal handlers. The kernel keeps the flags and mask that the program gave; only the address
// is ours. What the trampoline has to know of a signal is one word, so that it needs no lock.
#include "compat/src/libc/handlers.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "compat/src/libc/real.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/libc/vfork.hpp"

namespace vma::libc {

thread_local constinit SignalCounts t_signals = {};
thread_local constinit int t_signal_wake_fd = -1;

namespace {

// Address of the program's handler. The top bit, which no user address has, says that SA_RESTART is set.
using Record = std::uintptr_t;
constexpr Record kRestarts = Record{1} << (sizeof(Record) * 8 - 1);
constinit std::atomic<Record> g_records[NSIG] = {};
constinit std::atomic<std::uint64_t> g_interrupts = {}; // signals that siginterrupt() made signal() not restart

using Handler = void (*)(int, siginfo_t *, void *);

void wake_sleep()
{
    const int fd = t_signal_wake_fd;
    if (fd < 0)
        return;
    const int saved = errno;
    const std::uint64_t one = 1;
    static_cast<void>(real.write(fd, &one, sizeof one)); // full, it is readable as well
    errno = saved;
}

// Handlers without SA_SIGINFO get the other two arguments too; they don't look at them.
void trampoline(int signal, siginfo_t *info, void *context)
{
    const Record record = g_records[signal].load(std::memory_order_relaxed);
    ++t_signals.all;
    if ((record & kRestarts) == 0)
        ++t_signals.interrupting;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    wake_sleep();
    reinterpret_cast<Handler>(record & ~kRestarts)(signal, info, context);
}

sighandler_t trampoline_address()
{
    return reinterpret_cast<sighandler_t>(reinterpret_cast<Record>(&trampoline));
}

sighandler_t handler_of(Record record)
{
    return reinterpret_cast<sighandler_t>(record & ~kRestarts);
}

bool valid(int signal)
{
    return signal > 0 && signal < NSIG;
}

std::uint64_t bit_of(int signal)
{
    return std::uint64_t{1} << (static_cast<unsigned>(signal) - 1);
}

// A function of the program's that we can stand in for. In a child of vfork(), whose memory is its parent's but whose
// handlers are not, we don't.
bool wants_trampoline(int signal, sighandler_t handler)
{
    return valid(signal) && handler != SIG_DFL && handler != SIG_IGN && handler != SIG_HOLD && handler != SIG_ERR &&
           handler != trampoline_address() && !in_vfork_child();
}

// What the signal's record was when made, put back unless keep() is called: for an installation that libc refuses.
class NewRecord
{
public:
    NewRecord(int signal, sighandler_t handler, bool restarts)
        : slot_(g_records[signal]),
          before_(slot_.exchange(reinterpret_cast<Record>(handler) | (restarts ? kRestarts : 0)))
    {
    }
    ~NewRecord()
    {
        if (!kept_)
            slot_.store(before_);
    }
    NewRecord(const NewRecord &) = delete;
    NewRecord &operator=(const NewRecord &) = delete;
    void keep() { kept_ = true; }

private:
    std::atomic<Record> &slot_;
    const Record before_;
    bool kept_ = false;
};

using Installer = sighandler_t (*)(int, sighandler_t) noexcept;

// signal() and its like, which give a handler and get the last one.
sighandler_t install(Installer installer, int signal, sighandler_t handler, bool restarts)
{
    const Record before = valid(signal) ? g_records[signal].load() : 0;
    sighandler_t last;
    if (wants_trampoline(signal, handler)) {
        NewRecord record(signal, handler, restarts);
        last = installer(signal, trampoline_address());
        if (last != SIG_ERR)
            record.keep();
    } else {
        last = installer(signal, handler);
    }
    return last == trampoline_address() ? handler_of(before) : last;
}

} // namespace

int set_sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
    const Record before = valid(signal) ? g_records[signal].load() : 0;
    struct sigaction last;
    int result;
    if (action != nullptr && wants_trampoline(signal, action->sa_handler)) {
        NewRecord record(signal, action->sa_handler, (action->sa_flags & SA_RESTART) != 0);
        struct sigaction ours = *action;
        ours.sa_handler = trampoline_address();
        result = real.sigaction(signal, &ours, old != nullptr ? &last : nullptr);
        if (result == 0)
            record.keep();
    } else {
        result = real.sigaction(signal, action, old != nullptr ? &last : nullptr);
    }
    if (result == 0 && old != nullptr) {
        if (last.sa_handler == trampoline_address())
            last.sa_handler = handler_of(before);
        *old = last;
    }
    return result;
}

sighandler_t set_signal(int signal, sighandler_t handler)
{
    const bool restarts = valid(signal) && (g_interrupts.load() & bit_of(signal)) == 0;
    return install(real.signal, signal, handler, restarts);
}

sighandler_t set_sysv_signal(int signal, sighandler_t handler)
{
    return install(real.sysv_signal, signal, handler, false);
}

sighandler_t set_sigset(int signal, sighandler_t handler)
{
    return install(real.sigset, signal, handler, false);
}

int set_siginterrupt(int signal, int interrupts)
{
    const int result = real.siginterrupt(signal, interrupts);
    if (result != 0 || !valid(signal) || in_vfork_child())
        return result;
    if (interrupts != 0) {
        g_interrupts.fetch_or(bit_of(signal));
        g_records[signal].fetch_and(~kRestarts);
    } else {
        g_interrupts.fetch_and(~bit_of(signal));
        g_records[signal].fetch_or(kRestarts);
    }
    return result;
}

} // namespace vma::libc
