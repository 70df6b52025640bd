// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/sharing/holders.hpp"

#include <algorithm>

#include "compat/src/config/log.hpp"
#include "compat/src/config/once.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/sharing/family.hpp"
#include "compat/src/sharing/open_file.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/socket_sets.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

[[VMA_TABLE]] Held g_held; // only pages that are written to take memory

namespace {

constexpr std::uint32_t kNoRoom = UINT32_MAX; // never alone again
constexpr const char *kHeld = "another process holds it too";
constexpr const char *kTooMany = "too many sockets are held by several processes";

std::atomic<std::uint32_t> &held(const Socket &s)
{
    return g_held.cells[s.index];
}

bool has_cell(std::uint32_t cell)
{
    return cell != family::kNoCell && cell != kNoRoom;
}

void say_no_room()
{
    if (config::is_first(config::Once::kNoHolders))
        VMA_LOG(kWarn,
                "no room is left to note which processes hold a socket after fork(): such sockets stay on the kernel");
}

void say_reason(Socket &s, const char *reason)
{
    if (s.kernel_reason == reason)
        return;
    s.kernel_reason = reason;
    tell_way(s);
}

} // namespace

void holders_before_fork(bool others)
{
    g_held.forks.fetch_add(1, std::memory_order_relaxed);
    bool any = others;
    bool all = true;
    each_index(g_sockets.open, [&](std::uint32_t index) {
        std::atomic<std::uint32_t> &cell = g_held.cells[index];
        if (cell.load(std::memory_order_relaxed) == family::kNoCell) {
            const family::Cell taken = family::take();
            cell.store(taken != family::kNoCell ? taken : kNoRoom, std::memory_order_seq_cst);
        }
        any = true;
        all = all && cell.load(std::memory_order_relaxed) != kNoRoom;
    });
    if (!any)
        return family::no_fork_shares();
    if (!family::before_fork() || !all)
        say_no_room();
}

void holders_after_fork_in_child()
{
    family::after_fork_in_child();
}

void holders_after_fork(pid_t child)
{
    family::after_fork(child);
}

void holders_before_exec()
{
    family::exec_begins();
}

void holders_after_exec()
{
    family::exec_failed();
}

bool may_be_shared(const Socket &s)
{
    return held(s).load(std::memory_order_relaxed) != family::kNoCell;
}

void share_for_good(Socket &s)
{
    if (const std::uint32_t cell = held(s).load(std::memory_order_relaxed); has_cell(cell))
        family::keep_for_good(cell);
}

void leave_holders(Socket &s)
{
    if (may_be_shared(s))
        if (const std::uint32_t cell = held(s).exchange(family::kNoCell); has_cell(cell))
            family::leave(cell);
}

bool hold_alone(Socket &s)
{
    const std::uint32_t cell = held(s).load(std::memory_order_relaxed);
    if (cell == family::kNoCell)
        return true;
    if (!has_cell(cell) || !family::is_alone(cell)) {
        say_reason(s, has_cell(cell) ? kHeld : kTooMany);
        return false;
    }
    if (!protocol(s).take_alone(s))
        return false; // perhaps the next time: bytes may have been under way
    leave_holders(s);
    if (!follow_open_file(s)) {
        tell_way(s);
        return false;
    }
    say_reason(s, nullptr);
    char name[kNameMax];
    VMA_LOG(kDebug, "%s: no other process holds it any more, after %u sends and receives", connection_name(s, name),
            s.operations.load(std::memory_order_relaxed));
    return true;
}

namespace {

// A direction whose bytes are still to be counted, and that no call of this process is in.
bool can_be_counted(const Stream &s, std::uint32_t forks)
{
    return (s.sent_counted_at != forks && s.blocked_senders.load(std::memory_order_seq_cst) == 0) ||
           (s.received_counted_at != forks && s.blocked_receivers.load(std::memory_order_seq_cst) == 0);
}

} // namespace

bool may_ask_for_holders(Stream &s, std::uint32_t operations)
{
    constexpr std::uint32_t kMostBetween = 1024;
    constexpr std::uint32_t kFirst = 8;
    const std::uint32_t forks = g_held.forks.load(std::memory_order_relaxed);
    const bool anew = s.ask_holders_forks.exchange(forks, std::memory_order_relaxed) != forks;
    const std::uint32_t since = s.ask_holders_since.load(std::memory_order_relaxed);
    const std::uint32_t after = anew ? 0 : s.ask_holders_after.load(std::memory_order_relaxed);
    if (after != 0 && (operations - since < after || !can_be_counted(s, forks)))
        return false;
    s.ask_holders_since.store(operations, std::memory_order_relaxed);
    s.ask_holders_after.store(after != 0 ? std::min(2 * after, kMostBetween) : kFirst, std::memory_order_relaxed);
    return after != 0;
}

void count_sent(Stream &s, std::uint64_t n)
{
    s.tx.kernel_bytes.fetch_add(n, std::memory_order_relaxed);
}

void count_received(Stream &s, std::uint64_t n)
{
    s.rx.kernel_bytes.fetch_add(n, std::memory_order_relaxed);
}

} // namespace vma::sock
