// SPDX-License-Identifier: BSD-2-Clause
// Sockets that another process is about to hold: fork, exec, spawn, descriptor passing. They go back to the kernel
// first; what the peer had sent and we had not read comes again by the kernel (RETURN).
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "compat/src/config/log.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/socket/accounting.hpp"
#include "compat/src/socket/calls.hpp"
#include "compat/src/socket/engine.hpp"
#include "compat/src/socket/engine_objects.hpp"
#include "compat/src/socket/helper_thread.hpp"
#include "compat/src/socket/ports.hpp"
#include "compat/src/socket/reach.hpp"
#include "compat/src/socket/stash.hpp"
#include "compat/src/socket/stream.hpp"
#include "compat/src/socket/udp/state.hpp"

namespace vma::sock {

void sleepers_after_fork_in_child();

namespace {

bool g_is_child = false;               // of a fork
std::uint32_t g_depth_before_fork = 0; // of the forking thread; lift lock

template <class Visit> void each_in_use(Visit visit)
{
    const std::uint32_t count = pool_size();
    for (std::uint32_t i = 0; i < count; ++i) {
        Socket &s = *socket_by_index(i);
        const Mode mode = s.mode.load(std::memory_order_acquire);
        if (mode == Mode::kPlain || mode == Mode::kDual)
            visit(s);
    }
}

// Gives every socket of the pool that `chosen` says back to the kernel: all are asked first, then all are waited for. None
// must become dual meanwhile: bytes that its peer then sent would be lost with its endpoint.
template <class Chosen> void return_sockets(Chosen chosen, const char *why, Heir heir)
{
    const std::uint32_t count = pool_size();
    bool any = false;
    each_in_use([&chosen](Socket &s) {
        if (chosen(s))
            stop_lifting(s);
    });
    for (std::uint32_t i = 0; i < count; ++i) {
        Socket &s = *socket_by_index(i);
        if (dual(s) && chosen(s)) {
            char name[kNameMax];
            VMA_LOG(kDebug, "%s: back to the kernel: %s", connection_name(s, name), why);
            start_leaving(s, heir);
            any = true;
        }
    }
    if (!any)
        return;
    const std::int64_t until = return_deadline(); // for all of them
    for (std::uint32_t i = 0; i < count; ++i) {
        Socket &s = *socket_by_index(i);
        if (!dual(s) || !chosen(s))
            continue;
        wait_returned(s, until);
        give_up_waiting(s);
        tear_down(s, true);
        if (s.lingers_until_ns.load(std::memory_order_acquire) != 0)
            end_linger(s);
    }
}

void stay_on_kernel(Socket &s)
{
    share_for_good(s);
    Mode plain = Mode::kPlain;
    if (s.mode.compare_exchange_strong(plain, Mode::kKernel, std::memory_order_acq_rel)) {
        s.kernel_reason = "another program holds it too";
        tell_way(s);
    }
}

// Bytes that a peer left when it ended its span are read by whoever comes first; then the stream stays on the kernel.
void share(Socket &s)
{
    if (dual(s))
        share_stash(s, false);
    if (dual(s) && !is_udp(s))
        s.pinned.store(true, std::memory_order_release);
    else
        share_with_child(s);
}

void hand_over(Socket &s)
{
    if (dual(s))
        share_stash(s, true);
}

// An endpoint, or somebody may be about to connect one.
bool is_lifted(const Socket &s)
{
    return s.endpoint != nullptr || s.cookie != 0 || s.attempt.open ||
           (is_udp(s) && dual(s) && udp::state_of(s).cookie.load() != 0);
}

bool any_lifted()
{
    bool any = false;
    each_in_use([&any](const Socket &s) { any |= is_lifted(s); });
    return any;
}

bool survives_exec(const Socket &s)
{
    for (int fd = 0, left = static_cast<int>(s.descriptors.load()); left > 0 && fd < kMaxTracked; ++fd) {
        if (table_slot(fd).load(std::memory_order_relaxed) != &s)
            continue;
        --left;
        const int flags = libc::real.fcntl(fd, F_GETFD);
        if (flags >= 0 && (flags & FD_CLOEXEC) == 0)
            return true;
    }
    return false;
}

} // namespace

void return_before_fork()
{
    return_sockets([](const Socket &) { return true; }, "fork", Heir::kLibrary);
    const LockGuard guard(g_lift_lock);
    each_in_use([](Socket &s) {
        if (dual(s))
            share_stash(s, false);
    });
}

void return_all_shared_by_fork()
{
    const std::uint32_t depth = libc::t_critical.depth;
    for (bool again = true; again;) { // where a fork goes past our wrappers, other threads may lift sockets meanwhile
        return_sockets([](const Socket &) { return true; }, "fork", Heir::kLibrary);
        wait_for_helper_to_begin();
        g_helper_turn.lock();
        g_lift_lock.lock();
        again = any_lifted() || helper_is_beginning();
        if (again) {
            g_lift_lock.unlock();
            g_helper_turn.unlock();
        }
    }
    g_depth_before_fork = depth;
    holders_before_fork();
    each_in_use(share);
    mux::fork_prepare();
    lock_pool_for_fork();
    engine_exclude_polling(true, kAllRings);
}

void after_fork_in_parent()
{
    engine_exclude_polling(false, kAllRings);
    unlock_pool_after_fork();
    mux::fork_parent();
    g_lift_lock.unlock();
    g_helper_turn.unlock();
}

void after_fork_in_child()
{
    g_is_child = true;
    stats::after_fork_in_child();
    accounting_after_fork_in_child();
    engine_after_fork_in_child();
    udp::after_fork_in_child();
    extra::after_fork_in_child();
    attempts_after_fork_in_child();
    pacing_after_fork_in_child();
    unlock_pool_after_fork();
    g_lift_lock.reset();
    g_helper_turn.reset();
    helper_after_fork_in_child();
    g_live_sockets = nullptr;
    sleepers_after_fork_in_child();
    const std::uint32_t count = pool_size();
    for (std::uint32_t i = 0; i < count; ++i) {
        Socket &s = *socket_by_index(i);
        s.tx_lock.reset();
        s.rx_lock.reset();
        s.rx.unread_lock.reset();
        s.watch_lock.reset();
        s.mux.lock.reset();
        s.watchers = nullptr;
        s.bare_receivers = 0;
        s.bare_polls = 0;
        s.bare_senders = 0;
        s.waiters = 0;
        s.cookie = 0;
        s.attempt.open = false;
        s.attempt.listener = nullptr;
        s.pacing.turn = {};
        s.pacing.held_until = 0;
        if (is_udp(s))
            udp::after_fork_in_child(s);
        holders_after_fork_in_child(s);
    }
    recount_calls();
    for (std::uint32_t i = 0; i < count; ++i)
        release_if_unused(*socket_by_index(i));
    mux::fork_child();
    each_in_use([](Socket &s) {
        if (is_udp(s) && s.rx.unread.load(std::memory_order_relaxed) == nullptr)
            udp::unlift(s, false); // the datagrams that are left are the parent's
    });
    libc::restore_critical(g_depth_before_fork);
}

void forked(pid_t child)
{
    each_in_use([child](Socket &s) { holders_after_fork(s, child); });
}

namespace {

// What the program leaves to the kernel to close. A child's are its parent's to explain.
void explain_all()
{
    if (g_is_child || !config::log_enabled(config::Level::kDebug))
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
    each_in_use([](Socket &s) {
        if (s.tx.resend_from.load(std::memory_order_relaxed) == kNone || is_remote(s))
            return;
        s.tx_lock.lock();
        finish_resend(s);
        unlock_tx(s);
    });
}

} // namespace

// A device's writes die with the process: the peers are to have them, and the word that no more come.
void process_ends()
{
    explain_all();
    finish_resends();
    each_in_use(end_stash);
    udp::withdraw_all();
    if (g_remote_devices.load(std::memory_order_relaxed) != 0)
        return_sockets([](const Socket &s) { return is_remote(s) || s.on_port; }, "exit", Heir::kLibrary);
}

void process_ends_at_once()
{
    if (libc::t_critical.depth != 0)
        return; // by a handler of a signal that a fault of our own has raised: this thread may hold the locks
    finish_resends();
    each_in_use(end_stash);
    if (ports_are_named() && g_remote_devices.load(std::memory_order_relaxed) != 0)
        return_sockets([](const Socket &s) -> bool { return s.on_port; }, "exit", Heir::kLibrary);
}

void return_surviving_exec()
{
    finish_resends();
    // A port goes with the process, and the kernel has to end what it carried.
    return_sockets([](const Socket &s) { return s.on_port || survives_exec(s); }, "exec", Heir::kAnybody);
    each_in_use([](Socket &s) {
        if (!survives_exec(s))
            return;
        hand_over(s);
        if (s.holders.load(std::memory_order_relaxed) != nullptr)
            share_for_good(s);
    });
}

void return_for_spawn(bool has_file_actions)
{
    return_sockets([has_file_actions](const Socket &s) { return has_file_actions || survives_exec(s); },
                   "a new process", Heir::kAnybody);
    each_in_use([has_file_actions](Socket &s) {
        const bool survives = survives_exec(s);
        if (has_file_actions || survives)
            hand_over(s);
        if (survives) // the child may use it, and we don't see when it stops
            stay_on_kernel(s);
    });
}

void given_to_child(Socket &s)
{
    if (is_udp(s))
        return;
    s.pinned.store(true, std::memory_order_release); // where another thread has lifted it since it was given back
    stay_on_kernel(s);
}

void return_passed(const msghdr *msg)
{
    for (cmsghdr *c = CMSG_FIRSTHDR(msg); c != nullptr; c = CMSG_NXTHDR(const_cast<msghdr *>(msg), c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0))
            continue;
        const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (Socket *const s = lookup(fd)) {
                pin_to_kernel(*s, "its descriptor is passed to another process");
                hand_over(*s);
            }
        }
    }
}

} // namespace vma::sock
