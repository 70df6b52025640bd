// SPDX-License-Identifier: BSD-2-Clause
// The trampoline in front of signal handlers. The kernel keeps the flags and mask that the program gave; only the
// address is ours. What the trampoline has to know of a signal is one word, so that it needs no lock.
#include "compat/src/libc/handlers.hpp"

#include <ucontext.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "compat/src/libc/crash.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/raw_syscall.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/libc/touches.hpp"
#include "compat/src/libc/vfork.hpp"
#include "compat/src/libc/when_left.hpp"

namespace vma::libc {

// The model is said here again, or this file would call a function to find it.
thread_local constinit ThisThread t_libc [[gnu::tls_model("initial-exec")]] = {};
constinit Handlers g_handlers;

namespace {

// Address of the program's handler. The top bits, which no user address has, say which flags are set.
using Record = std::uintptr_t;
constexpr Record kRestarts = Record{1} << (sizeof(Record) * 8 - 1); // SA_RESTART
constexpr Record kOnce = kRestarts >> 1;                            // SA_RESETHAND
constexpr Record kInfo = kRestarts >> 2;                            // SA_SIGINFO
constexpr Record kFlags = kRestarts | kOnce | kInfo;

using Handler = void (*)(int, siginfo_t *, void *);

std::uint64_t bit_of(int signal)
{
    return std::uint64_t{1} << (static_cast<unsigned>(signal) - 1);
}

// The instruction that failed can't go on before its handler has run.
bool is_fault(int signal)
{
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL || signal == SIGTRAP ||
           signal == SIGSYS;
}

// ---- what runs before the program's handler
//
// It uses no stack: the one that the kernel chose may have room for its own frame and a handler that needs none, and
// what lies below is not ours (sigaltstack(2), MINSIGSTKSZ). So here each function calls no other but by its end, as a
// jump, and makes system calls by itself. handlers_test looks at every byte.

constexpr std::uint64_t kOne = 1;

[[gnu::always_inline]] inline Record record_of(int signal)
{
    return g_handlers.records[signal].load(std::memory_order_relaxed);
}

// The record is looked up again, as a register less has to be kept over the call.
[[gnu::noinline]] void wake_sleep_and_run(int signal, siginfo_t *info, void *context)
{
    raw_syscall(SYS_write, t_libc.signals.wake_fd, &kOne, sizeof kOne); // full, it is readable as well
    return reinterpret_cast<Handler>(record_of(signal) & ~kFlags)(signal, info, context);
}

[[gnu::noinline]] void turn_place_and_run(int signal, siginfo_t *info, void *context)
{
    if (std::uint32_t *const turns = g_handlers.turns.load(std::memory_order_relaxed); turns != nullptr)
        __atomic_fetch_add(
            turns + g_handlers.turn_stride * static_cast<unsigned>(kTurnAtPlace - t_libc.signals.wake_fd), 1,
            __ATOMIC_SEQ_CST); // no call: a stack may be small
    return reinterpret_cast<Handler>(record_of(signal) & ~kFlags)(signal, info, context);
}

[[gnu::noinline]] void run_handler(int signal, siginfo_t *info, void *context, Record record)
{
    ++t_libc.signals.all;
    if ((record & kRestarts) == 0)
        ++t_libc.signals.interrupting;
    if (signal == SIGINT && g_handlers.interrupts_end_all.load(std::memory_order_relaxed))
        g_handlers.interrupts_of_all.fetch_add(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (t_libc.signals.wake_fd <= kTurnAtPlace) [[unlikely]]
        return turn_place_and_run(signal, info, context);
    if (t_libc.signals.wake_fd >= 0) [[unlikely]]
        return wake_sleep_and_run(signal, info, context);
    return reinterpret_cast<Handler>(record & ~kFlags)(signal, info, context);
}

// As the kernel had it: used up.
[[gnu::noinline]] void reset_and_run(int signal, siginfo_t *info, void *context)
{
    KernelAction &now = g_handlers.once[signal];
    now.handler = nullptr;
    raw_syscall(SYS_rt_sigaction, signal, &now, nullptr, sizeof now.mask);
    return run_handler(signal, info, context, record_of(signal));
}

// It was not sent again: there are too many that wait.
[[gnu::noinline]] void run_undeferred(int signal, siginfo_t *info, void *context)
{
    t_libc.critical.deferred &= ~bit_of(signal);
    if ((record_of(signal) & kOnce) != 0)
        return reset_and_run(signal, info, context);
    return run_handler(signal, info, context, record_of(signal));
}

// Sends the signal to this thread again, where it waits, blocked, for deliver_deferred(). Without SA_SIGINFO the kernel
// leaves `info` unset.
template <bool kInformed> [[gnu::noinline]] void defer_handler(int signal, siginfo_t *info, void *context)
{
    const Ids ids = raw_ids();
    const long result = kInformed ? raw_syscall(SYS_rt_tgsigqueueinfo, ids.process, ids.thread, signal, info)
                                  : raw_syscall(SYS_tgkill, ids.process, ids.thread, signal);
    if (result != 0)
        return run_undeferred(signal, info, context);
    // The kernel's set of signals is a word, and libc's begins with it.
    *reinterpret_cast<std::uint64_t *>(&static_cast<ucontext_t *>(context)->uc_sigmask) |= bit_of(signal);
}

// Blocks it before it is sent: with SA_NODEFER it would come in here again at once.
[[gnu::noinline]] void begin_deferring(int signal, siginfo_t *info, void *context)
{
    t_libc.critical.deferred |= bit_of(signal);
    raw_syscall(SYS_rt_sigprocmask, SIG_BLOCK, &t_libc.critical.deferred, nullptr, sizeof t_libc.critical.deferred);
    return (record_of(signal) & kInfo) != 0 ? defer_handler<true>(signal, info, context)
                                            : defer_handler<false>(signal, info, context);
}

#if defined(__aarch64__)
// Linux gives a handler without SA_SIGINFO nothing but the signal's number there. The rest lies on the stack all the
// same, where the kernel's struct rt_sigframe has it: what is known of the signal, unset then, and the context.
extern "C" [[gnu::visibility("hidden")]] void vma_trampoline(int signal, siginfo_t *info, void *context);
static_assert(sizeof(siginfo_t) == 128);
asm(".pushsection .text\n"
    ".global vma_trampoline\n"
    ".hidden vma_trampoline\n"
    ".type vma_trampoline, %function\n"
    "vma_trampoline:\n"
    "    hint #34\n" // a place that a jump may lead to, where the processor asks for that
    "    mov x1, sp\n"
    "    add x2, sp, #128\n"
    "    b vma_trampoline_of_three\n"
    ".size vma_trampoline, . - vma_trampoline\n"
    ".popsection");
constexpr Handler kEntry = vma_trampoline;
#else
void trampoline(int signal, siginfo_t *info, void *context);
constexpr Handler kEntry = trampoline;
#endif

// Installs what put_back() has found, unless that is another one already. One that is put off can't nest: where one
// signal waits for the thread and one for the process, the second would find SIG_DFL before the handler's first
// instruction.
template <bool kDefers> [[gnu::noinline]] void install_again(int signal, siginfo_t *info, void *context)
{
    KernelAction &now = g_handlers.once[signal];
    if (now.handler == nullptr) {
        now.handler = kEntry;
        if constexpr (kDefers)
            now.flags &= ~static_cast<unsigned long>(SA_NODEFER);
        raw_syscall(SYS_rt_sigaction, signal, &now, nullptr, sizeof now.mask);
    }
    if constexpr (kDefers)
        return begin_deferring(signal, info, context);
}

// A handler for one signal only (SA_RESETHAND) is not installed any more by now. It is again behind this, with the
// flags and mask that the kernel has kept. The call can't fail.
template <bool kDefers> [[gnu::noinline]] void put_back(int signal, siginfo_t *info, void *context)
{
    raw_syscall(SYS_rt_sigaction, signal, nullptr, &g_handlers.once[signal], sizeof(KernelAction::mask));
    return install_again<kDefers>(signal, info, context);
}

[[gnu::noinline]] void handle_fault(int signal, siginfo_t *info, void *context)
{
    if (!go_on(context))
        return run_handler(signal, info, context, record_of(signal));
    if ((record_of(signal) & kOnce) != 0)
        return put_back<false>(signal, info,
                               context); // a fault that is none of the program's does not use its handler up
}

// Handlers without SA_SIGINFO get the other two arguments too; they don't look at them. One for a fault can't wait, and
// runs at once.
#if defined(__aarch64__)
extern "C" [[gnu::visibility("hidden"), gnu::used]] void vma_trampoline_of_three(int signal, siginfo_t *info,
                                                                                 void *context)
#else
void trampoline(int signal, siginfo_t *info, void *context)
#endif
{
    const Record record = record_of(signal);
    if (signal == SIGSEGV || signal == SIGBUS)
        return handle_fault(signal, info, context);
    if (t_libc.critical.depth == 0 || is_fault(signal)) [[likely]]
        return run_handler(signal, info, context, record);
    if ((record & kOnce) != 0)
        return put_back<true>(signal, info, context);
    return begin_deferring(signal, info, context);
}

sighandler_t trampoline_address()
{
    return reinterpret_cast<sighandler_t>(reinterpret_cast<Record>(kEntry));
}

sighandler_t handler_of(Record record)
{
    return reinterpret_cast<sighandler_t>(record & ~kFlags);
}

bool valid(int signal)
{
    return signal > 0 && signal < NSIG;
}

// Of its threads, not the program's to handle.
bool is_libcs(int signal)
{
    constexpr int kFirst = 32; // the kernel's SIGRTMIN
    return signal >= kFirst && signal < SIGRTMIN;
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
    NewRecord(int signal, sighandler_t handler, Record flags)
        : slot_(g_handlers.records[signal]), before_(slot_.exchange(reinterpret_cast<Record>(handler) | flags))
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

// A handler of ours where the program has none.
bool is_own(sighandler_t handler)
{
    return is_crash_handler(handler) || is_default_handler(handler);
}

void hide_own(struct sigaction &action)
{
    hide_crash_handler(action);
    if (is_default_handler(action.sa_handler)) {
        action.sa_handler = SIG_DFL;
        action.sa_flags = 0;
    }
}

// What the kernel has, as the program gave it.
void show_the_programs(struct sigaction &action, Record record)
{
    hide_own(action);
    if (action.sa_handler == trampoline_address())
        action.sa_handler = handler_of(record);
}

using Installer = sighandler_t (*)(int, sighandler_t) noexcept;

Record flags_of(const struct sigaction &action)
{
    return ((action.sa_flags & SA_RESTART) != 0 ? kRestarts : 0) |
           ((static_cast<unsigned>(action.sa_flags) & SA_RESETHAND) != 0 ? kOnce : 0) |
           ((action.sa_flags & SA_SIGINFO) != 0 ? kInfo : 0);
}

// signal() and its like, which give a handler and get the last one.
sighandler_t install(Installer installer, int signal, sighandler_t handler, Record flags)
{
    const Record before = valid(signal) ? g_handlers.records[signal].load() : 0;
    sighandler_t last;
    if (wants_trampoline(signal, handler)) {
        NewRecord record(signal, handler, flags);
        last = installer(signal, trampoline_address());
        if (last != SIG_ERR)
            record.keep();
    } else {
        last = installer(signal, handler);
    }
    struct sigaction ours = {};
    if (last != SIG_ERR && handler == SIG_DFL && !in_vfork_child() && has_default_action(signal, ours))
        real.sigaction(signal, &ours, nullptr);
    if (is_own(last))
        return SIG_DFL;
    return last == trampoline_address() ? handler_of(before) : last;
}

} // namespace

void let_interrupts_end_all_polling()
{
    g_handlers.interrupts_end_all.store(true, std::memory_order_relaxed);
}

void deliver_deferred()
{
    const int saved = errno;
    const std::uint64_t signals = t_libc.critical.deferred;
    t_libc.critical.deferred = 0;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    real.syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &signals, nullptr, sizeof signals);
    errno = saved;
}

void handlers_bypass_us()
{
    g_handlers.bypassed.store(true, std::memory_order_relaxed);
}

void adopt_handlers_if_bypassed()
{
    if (!g_handlers.bypassed.load(std::memory_order_relaxed)) [[likely]]
        return;
    for (int signal = 1; signal < NSIG; ++signal) {
        struct sigaction now;
        if (real.sigaction(signal, nullptr, &now) == 0 && wants_trampoline(signal, now.sa_handler) &&
            !is_own(now.sa_handler))
            set_sigaction(signal, &now, nullptr);
    }
}

bool is_trampoline(sighandler_t handler)
{
    return handler == trampoline_address();
}

bool on_alternate_stack()
{
    stack_t stack = {};
    return ::sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) != 0;
}

// Not inlined, so that all that lives is above its frame.
[[gnu::noinline]] void cut_back(_pthread_cleanup_buffer &buffer)
{
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (reinterpret_cast<std::uintptr_t>(t_libc.to_undo) > here || on_alternate_stack())
        return;
    buffer.__prev = nullptr;
    t_libc.to_undo = &buffer;
}

int set_sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
    struct sigaction last;
    struct sigaction ours;
    int result;
    if (!valid(signal) || is_libcs(signal)) // refused before libc looks at the actions
        return real.sigaction(signal, action, old);
    const Record before = g_handlers.records[signal].load();
    if (action == nullptr) {
        result = real.sigaction(signal, nullptr, old);
        if (result == 0 && old != nullptr)
            show_the_programs(*old, before);
        return result;
    }
    if (wants_trampoline(signal, action->sa_handler)) {
        NewRecord record(signal, action->sa_handler, flags_of(*action));
        ours = *action;
        ours.sa_handler = trampoline_address();
        result = real.sigaction(signal, &ours, old != nullptr ? &last : nullptr);
        if (result == 0)
            record.keep();
    } else {
        const bool ends = action->sa_handler == SIG_DFL && !in_vfork_child();
        result = real.sigaction(signal, ends && has_default_action(signal, ours) ? &ours : action,
                                old != nullptr ? &last : nullptr);
    }
    if (result == 0 && old != nullptr) {
        show_the_programs(last, before);
        *old = last;
    }
    return result;
}

sighandler_t set_signal(int signal, sighandler_t handler)
{
    const bool restarts = valid(signal) && (g_handlers.interrupts.load() & bit_of(signal)) == 0;
    return install(real.signal, signal, handler, restarts ? kRestarts : 0);
}

sighandler_t set_sysv_signal(int signal, sighandler_t handler)
{
    return install(real.sysv_signal, signal, handler, kOnce);
}

sighandler_t set_sigset(int signal, sighandler_t handler)
{
    return install(real.sigset, signal, handler, 0);
}

int set_siginterrupt(int signal, int interrupts)
{
    const int result = real.siginterrupt(signal, interrupts);
    if (result != 0 || !valid(signal) || in_vfork_child())
        return result;
    if (interrupts != 0) {
        g_handlers.interrupts.fetch_or(bit_of(signal));
        g_handlers.records[signal].fetch_and(~kRestarts);
    } else {
        g_handlers.interrupts.fetch_and(~bit_of(signal));
        g_handlers.records[signal].fetch_or(kRestarts);
    }
    return result;
}

void set_signal_turns(std::uint32_t *turns, std::size_t stride)
{
    g_handlers.turn_stride = stride;
    g_handlers.turns.store(turns, std::memory_order_release);
}

} // namespace vma::libc
