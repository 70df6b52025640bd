// SPDX-License-Identifier: BSD-2-Clause
// Sockets that another process is about to hold: fork, exec, spawn, descriptor passing. They go back to the kernel
// first; what the peer had sent and we had not read comes again by the kernel (RETURN).
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "compat/src/base/probes.hpp"
#include "compat/src/base/spare_room.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/fork_handlers.hpp"
#include "compat/src/engine/helper_rest.hpp"
#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/retired.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/offload/offload_habit.hpp"
#include "compat/src/offload/remote_connect.hpp"
#include "compat/src/process/survivors.hpp"
#include "compat/src/sharing/holders.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/stats/region.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/read_urings.hpp"
#include "compat/src/table/socket_sets.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/pacing.hpp"
#include "compat/src/udp/state.hpp"
#include "vma/passed.hpp"

namespace vma::sock {

void sleepers_after_fork_in_child();

namespace {

template <class Visit> void each_in_use(const SocketSet &set, Visit visit)
{
    each_index(set, [&visit](std::uint32_t i) {
        Socket &s = *socket_by_index(i);
        const Mode mode = s.mode.load(std::memory_order_acquire);
        if (mode == Mode::kKernelOnly || mode == Mode::kOffloaded)
            visit(s);
    });
}

// A stream that a port carries goes with the process, and the kernel has to end it.
bool is_on_port(const Socket &s)
{
    const Stream *const stream = stream_of(s);
    return stream != nullptr && !transport(*stream).spans;
}

bool ends_with_process(const Socket &s)
{
    const Stream *const stream = stream_of(s);
    return stream != nullptr && transport(*stream).ends_with_process;
}

// Of the others there is nothing to give back.
template <class Visit> void each_noted(Visit visit)
{
    each_in_use(g_sockets.noted, visit);
}

// Gives every socket of the pool that `chosen` says back to the kernel: all are asked first, then all are waited for.
// None must become offloaded meanwhile: bytes that its peer then sent would be lost with its endpoint.
template <class Chosen>
void return_sockets(Chosen chosen, const char *why, Heir heir, Closing closing = Closing::kNow,
                    std::int64_t (*deadline)() = return_deadline)
{
    bool any = false;
    each_noted([&chosen](Socket &s) {
        if (chosen(s))
            stop_offloading(s);
    });
    each_noted([&](Socket &s) {
        if (!offloaded(s) || !chosen(s))
            return;
        char name[kNameMax];
        probe::fallback(s.any_fd.load(std::memory_order_relaxed), why, true);
        VMA_LOG(kDetails, "%s: back to the kernel: %s", connection_name(s, name), why);
        start_leaving(s, heir);
        any = true;
    });
    if (!any)
        return;
    const std::int64_t until = deadline(); // for all of them
    each_noted([&chosen, until, heir, closing](Socket &s) {
        if (!offloaded(s) || !chosen(s))
            return;
        protocol(s).finish_leaving(s, until, heir, closing);
    });
}

void stay_on_kernel(Socket &s)
{
    share_for_good(s);
    s.pinned.store(true, std::memory_order_release);
    Mode kernel_only = Mode::kKernelOnly;
    if (s.mode.compare_exchange_strong(kernel_only, mode_without_endpoint(s), std::memory_order_acq_rel)) {
        s.kernel_reason = "another program holds it too";
        probe::fallback(s.any_fd.load(std::memory_order_relaxed), s.kernel_reason, false);
        tell_way(s);
    }
}

// Bytes that are unread are read by whoever comes first; the stream may be offloaded again when all are, and this
// process has it alone.
void share(Socket &s)
{
    if (offloaded(s))
        share_leftovers(s, false);
    if (offloaded(s) && !protocol(s).messages && s.unread.load(std::memory_order_relaxed) == nullptr)
        s.pinned.store(true, std::memory_order_release); // each has a copy: there was no memory that both could have
}

void hand_over(Socket &s)
{
    if (offloaded(s))
        share_leftovers(s, true);
}

bool any_in_use()
{
    bool any = false;
    each_noted([&any](const Socket &s) { any |= protocol(s).may_have_peer(s); });
    return any;
}

// Most have nothing to change: each page that is written to is copied for the child.
void begin_anew_in_child(Socket &s)
{
    for (Mutex *const lock : {&s.tx_lock, &s.rx_lock, &s.unread_lock, &s.watch_lock, &s.mux.lock})
        lock->reset();
    set_if_other(s.watchers, static_cast<Watcher *>(nullptr));
    for (std::atomic<std::uint32_t> *const calls :
         {&s.blocked_receivers, &s.blocked_polls, &s.blocked_senders, &s.waiters})
        set_if_other(*calls, 0U);
    set_if_other(s.cookie, std::uint64_t{0});
    if (s.pacing.turn.waits())
        s.pacing.turn = {};
    set_if_other(s.pacing.held_until, std::uint64_t{0});
    protocol(s).begin_in_child(s);
}

} // namespace

namespace {

void return_all_for_fork(Closing closing)
{
    retired_must_stay();
    return_sockets([](const Socket &) { return true; }, "fork", Heir::kLibrary, closing);
}

} // namespace

void return_before_fork()
{
    return_all_for_fork(Closing::kBehindFork);
    const LockGuard guard(g_offload.lock);
    each_noted([](Socket &s) {
        if (offloaded(s))
            share_leftovers(s, false);
    });
}

void return_all_shared_by_fork()
{
    const std::uint32_t depth = libc::t_libc.critical.depth;
    // Where a fork goes past our wrappers, other threads may offload sockets meanwhile.
    for (bool again = true; again;) {
        return_all_for_fork(Closing::kNow);
        wait_for_helper_to_begin();
        g_helper.turn.lock();
        g_offload.lock.lock();
        again = any_in_use() || helper_is_beginning();
        if (again) {
            g_offload.lock.unlock();
            g_helper.turn.unlock();
        }
    }
    g_forks.depth_before = depth;
    each_noted(share);
    const bool sets = kMultiplexers.fork_prepare();
    lock_pool_for_fork();
    holders_before_fork(sets);
    engine_exclude_polling(true, kAllRings);
}

void after_fork_in_parent()
{
    engine_exclude_polling(false, kAllRings);
    unlock_pool_after_fork();
    kMultiplexers.fork_parent();
    retired_may_go();
    g_offload.lock.unlock();
    g_helper.turn.unlock();
}

void after_fork_in_child()
{
    g_forks.is_child = true;
    libc::limit_after_fork_in_child();
    SharedRoom::after_fork_in_child();
    retired_after_fork_in_child();
    urings_after_fork_in_child();
    stats::after_fork_in_child();
    accounting_after_fork_in_child();
    engine_after_fork_in_child();
    udp::after_fork_in_child();
    kExtraApi.after_fork_in_child();
    attempts_after_fork_in_child();
    offload_habits_after_fork_in_child();
    pacing_after_fork_in_child();
    unlock_pool_after_fork();
    g_offload.lock.reset();
    g_helper.turn.reset();
    helper_after_fork_in_child();
    rests_after_fork_in_child();
    g_offload.live = nullptr;
    sleepers_after_fork_in_child();
    holders_after_fork_in_child();
    const std::uint32_t count = pool_size();
    bool any_kept = false;
    for (std::uint32_t i = 0; i < count; ++i) {
        Socket &s = *socket_by_index(i);
        begin_anew_in_child(s);
        any_kept |= s.kept_fd.load(std::memory_order_relaxed) >= 0;
    }
    recount_calls();
    for (std::uint32_t i = 0; any_kept && i < count; ++i)
        release_if_unused(*socket_by_index(i));
    kMultiplexers.fork_child();
    each_noted([](Socket &s) { protocol(s).leave_in_child(s); });
    libc::restore_critical(g_forks.depth_before);
}

void forked(pid_t child)
{
    holders_after_fork(child);
}

namespace {

// What the program leaves to the kernel to close. A child's are its parent's to explain.
void explain_all()
{
    if (g_forks.is_child || !config::log_enabled(config::Level::kDetails))
        return;
    for (std::uint32_t i = 0; i < pool_size(); ++i) {
        Socket &s = *socket_by_index(i);
        if (s.mode.load(std::memory_order_acquire) != Mode::kFree)
            explain(s);
    }
}

// What a peer wants to have sent again must be with the kernel before it ends the connection.
void finish_resends()
{
    each_noted([](Socket &socket) {
        Stream *const s = stream_of(socket);
        if (s == nullptr || s->tx.resend_from.load(std::memory_order_relaxed) == kNone || !transport(*s).ordered)
            return;
        s->tx_lock.lock();
        finish_resend(*s);
        unlock_tx(*s);
    });
}

} // namespace

// A device's writes die with the process: the peers are to have them, and the word that no more come.
[[VMA_AT_STARTUP]] void process_ends()
{
    if (pool_size() == 0)
        return;  // it has had no socket
    end_loads(); // what is opened later nobody closes
    explain_all();
    finish_resends();
    each_noted(end_leftovers);
    udp::withdraw_all();
    if (g_engine.devices.open.load(std::memory_order_relaxed) != 0)
        return_sockets(ends_with_process, "exit", Heir::kAnybody, Closing::kNow,
                       exit_deadline); // the kernel answers what is not read
}

void process_ends_at_once()
{
    if (libc::t_libc.critical.depth != 0)
        return; // by a handler of a signal that a fault of our own has raised: this thread may hold the locks
    finish_resends();
    each_noted(end_leftovers);
    if (ports_are_named() && g_engine.devices.open.load(std::memory_order_relaxed) != 0)
        return_sockets(is_on_port, "exit", Heir::kLibrary);
}

void return_surviving_exec()
{
    finish_resends();
    const Survivors survivors(
        [](std::uint32_t index) { return g_sockets.noted.has(static_cast<int>(index)) || g_held.cells[index] != 0; });
    return_sockets([&survivors](const Socket &s) { return is_on_port(s) || survivors.has(s); }, "exec", Heir::kAnybody);
    each_noted([&survivors](Socket &s) {
        if (survivors.has(s))
            hand_over(s);
    });
    each_index(g_sockets.open, [&survivors](std::uint32_t index) {
        if (g_held.cells[index] != 0 && survivors.has(*socket_by_index(index)))
            share_for_good(*socket_by_index(index));
    });
    holders_before_exec();
    kMultiplexers.before_exec();
}

void exec_failed()
{
    holders_after_exec();
    kMultiplexers.exec_failed();
}

void return_for_spawn(bool has_file_actions)
{
    const Survivors survivors([](std::uint32_t) { return true; });
    return_sockets([&](const Socket &s) { return has_file_actions || survivors.has(s); }, "a new process",
                   Heir::kAnybody);
    each_noted([&](Socket &s) {
        if (has_file_actions || survivors.has(s))
            hand_over(s);
    });
    each_in_use(g_sockets.open, [&survivors](Socket &s) {
        if (survivors.has(s)) // the child may use it, and we don't see when it stops
            stay_on_kernel(s);
    });
}

void tables_part(const char *how)
{
    const config::Level level = pool_size() != 0 ? config::Level::kInfo : config::Level::kDebug;
    if (config::log_enabled(level))
        config::log_line(level,
                         "%s: threads of this process have descriptor tables of their own from now on: all its "
                         "sockets stay on the kernel",
                         how);
    leave_to_kernel([] {
        return_sockets([](const Socket &) { return true; }, "descriptor tables of threads", Heir::kAnybody);
        pin_all("descriptor tables of threads");
    });
    engine_stop();
    stats::give_up_file();
}

void given_to_child(Socket &s)
{
    if (protocol(s).messages)
        return;
    s.pinned.store(true, std::memory_order_release); // where another thread has offloaded it since it was given back
    stay_on_kernel(s);
}

void return_passed(const msghdr *msg)
{
    each_passed(*msg, [](int fd) {
        if (Socket *const s = lookup(fd)) {
            pin_to_kernel(*s, "its descriptor is passed to another process");
            hand_over(*s);
        } else {
            kMultiplexers.passed(fd);
        }
    });
}

} // namespace vma::sock
