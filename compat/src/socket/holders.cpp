// SPDX-License-Identifier: BSD-2-Clause
// A table in anonymous memory that children inherit. A process is known by its number and the namespace of numbers; one
// that is dead, however it died, holds nothing any more.
#include "compat/src/socket/holders.hpp"
#include "compat/src/socket/accounting.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

#include "compat/src/libc/real.hpp"
#include "compat/src/socket/author.hpp"
#include "compat/src/socket/kernel_counts.hpp"
#include "compat/src/socket/stream.hpp"

namespace vma::sock {

namespace {

constexpr std::size_t kMostHolders = 6;
constexpr std::size_t kTableBytes = std::size_t{256} << 10; // memory is only taken by what is used

} // namespace

struct alignas(64) Holders {
    std::atomic<pid_t> processes[kMostHolders]; // 0: nobody; negative: the child of a fork that is being made
    std::atomic<bool> for_good;                 // never alone again
    std::atomic<std::uint64_t> pid_namespace;
    std::atomic<std::uint64_t> sent;
    std::atomic<std::uint64_t> received;
};

namespace {

constexpr std::size_t kEntries = kTableBytes / sizeof(Holders) - 1;

struct Table {
    alignas(64) std::atomic<std::uint32_t> forks;
    Holders entries[kEntries];
};
static_assert(sizeof(Table) <= kTableBytes);

Table *g_shared = nullptr; // g_lift_lock
// What stands for the child of this thread's fork, or for us, until the number is known. Each fork of the family has its own: the child of the
// one before may not have run yet, and would take the place of the next one's.
[[gnu::tls_model("initial-exec")]] thread_local constinit pid_t t_fork = 0;

bool make_table()
{
    if (g_shared != nullptr)
        return true;
    void *const memory =
        ::mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    g_shared = static_cast<Table *>(memory); // zeros
    return true;
}

bool is_free(const Holders &holders)
{
    for (const auto &process : holders.processes)
        if (process.load(std::memory_order_acquire) != 0)
            return false;
    return true;
}

bool add_process(Holders &holders, pid_t process)
{
    for (auto &place : holders.processes) {
        pid_t nobody = 0;
        if (place.compare_exchange_strong(nobody, process))
            return true;
    }
    return false;
}

void replace_process(Holders &holders, pid_t process, pid_t by)
{
    for (auto &place : holders.processes) {
        pid_t expected = process;
        if (place.compare_exchange_strong(expected, by))
            return;
    }
}

bool is_dead(const Holders &holders, pid_t process)
{
    return process > 0 && ::kill(process, 0) != 0 && errno == ESRCH &&
           holders.pid_namespace == pid_space(); // 0, where neither has a /proc: see below
}

// Other processes of the family look for one at the same time: one of them may have taken it, made a child and left it since we looked.
bool take_if_free(Holders &entry)
{
    pid_t self = ::getpid();
    pid_t nobody = 0;
    if (!is_free(entry) || !entry.processes[0].compare_exchange_strong(nobody, self))
        return false;
    for (std::size_t i = 1; i < kMostHolders; ++i) {
        if (entry.processes[i].load(std::memory_order_seq_cst) == 0)
            continue;
        entry.processes[0].compare_exchange_strong(self, 0);
        return false;
    }
    return true;
}

Holders *find_free_entry()
{
    for (Holders &entry : g_shared->entries) {
        if (!take_if_free(entry))
            continue;
        entry.for_good = false;
        entry.sent = 0;
        entry.received = 0;
        entry.pid_namespace = pid_space();
        return &entry;
    }
    return nullptr;
}

void forget_the_dead(Holders &holders)
{
    for (auto &place : holders.processes) {
        pid_t process = place.load();
        if (is_dead(holders, process))
            place.compare_exchange_strong(process, 0);
    }
}

Holders *take_entry()
{
    if (!make_table())
        return nullptr;
    Holders *entry = find_free_entry();
    if (entry == nullptr) {
        for (Holders &each : g_shared->entries)
            forget_the_dead(each);
        entry = find_free_entry();
    }
    return entry;
}

// Bytes counted in the process so far move to the shared sums.
void move_counts(Socket &s, Holders &holders)
{
    holders.sent.fetch_add(s.tx.kernel_bytes.exchange(0));
    holders.received.fetch_add(s.rx.kernel_bytes.exchange(0));
}

bool in_bare_call(const Socket &s)
{
    return s.bare_receivers.load(std::memory_order_seq_cst) != 0 || s.bare_senders.load(std::memory_order_seq_cst) != 0;
}

} // namespace

void holders_before_fork()
{
    constexpr std::uint32_t kMost = INT32_MAX;
    if (make_table())
        t_fork = -static_cast<pid_t>(g_shared->forks.fetch_add(1, std::memory_order_relaxed) % kMost) - 1;
}

// A bare call that is in the kernel now will count where it looked before: its bytes would be missing in the child's sum.
void share_with_child(Socket &s)
{
    Holders *holders = s.holders.load(std::memory_order_relaxed);
    if (holders == nullptr) {
        holders = take_entry();
        if (holders == nullptr) {
            s.mode.store(Mode::kKernel, std::memory_order_release);
            s.kernel_reason = "too many sockets are held by several processes";
            tell_way(s);
            return;
        }
        s.kernel_reason = "another process holds it too";
        tell_way(s);
        move_counts(s, *holders);
        s.holders.store(holders, std::memory_order_seq_cst);
    }
    s.ask_holders_after.store(0, std::memory_order_relaxed);
    if (in_bare_call(s))
        holders->for_good = true;
    else
        move_counts(s, *holders);
    forget_the_dead(*holders);
    if (!add_process(*holders, t_fork))
        holders->for_good = true;
}

void holders_after_fork_in_child(Socket &s)
{
    Holders *const holders = s.holders.load(std::memory_order_relaxed);
    if (holders == nullptr)
        return;
    s.tx.kernel_bytes = 0;
    s.rx.kernel_bytes = 0;
    replace_process(*holders, t_fork, ::getpid());                 // the parent may have done it already
    if (holders->pid_namespace != pid_space() || ::getppid() == 0) // a parent of another namespace has no number here
        holders->for_good = true;
}

void holders_after_fork(Socket &s, pid_t child)
{
    if (Holders *const holders = s.holders.load(std::memory_order_relaxed))
        replace_process(*holders, t_fork, child > 0 ? child : 0);
}

void share_for_good(Socket &s)
{
    if (Holders *const holders = s.holders.load(std::memory_order_relaxed))
        holders->for_good = true;
}

void leave_holders(Socket &s)
{
    Holders *const holders = s.holders.load();
    if (holders == nullptr)
        return;
    move_counts(s, *holders); // of calls that began before the fork
    s.holders = nullptr;
    replace_process(*holders, ::getpid(), 0);
}

bool hold_alone(Socket &s)
{
    Holders *const holders = s.holders.load(std::memory_order_relaxed);
    if (holders == nullptr)
        return true;
    if (holders->for_good)
        return false;
    const pid_t self = ::getpid();
    forget_the_dead(*holders);
    for (const auto &place : holders->processes)
        if (const pid_t process = place.load(); process != 0 && process != self)
            return false;
    s.holders.store(nullptr, std::memory_order_seq_cst); // from here on calls count in the socket
    if (in_bare_call(s)) {                               // this one may not
        s.holders.store(holders, std::memory_order_seq_cst);
        return false;
    }
    // A process that was killed between a call and its count leaves a wrong sum.
    if (!is_udp(s) && (!kernel_agrees_on_sent(s, s.tx.kernel_bytes + holders->sent) ||
                       !kernel_agrees_on_read(s, s.rx.kernel_bytes + holders->received))) {
        s.holders.store(holders, std::memory_order_seq_cst);
        return false; // perhaps the next time: bytes may have been under way
    }
    s.kernel_reason = nullptr;
    tell_way(s);
    s.tx.kernel_bytes.fetch_add(holders->sent);
    s.rx.kernel_bytes.fetch_add(holders->received);
    replace_process(*holders, self, 0);
    return true;
}

void count_sent(Socket &s, std::uint64_t n)
{
    Holders *const holders = s.holders.load(std::memory_order_seq_cst);
    (holders != nullptr ? holders->sent : s.tx.kernel_bytes).fetch_add(n, std::memory_order_relaxed);
}

void count_received(Socket &s, std::uint64_t n)
{
    Holders *const holders = s.holders.load(std::memory_order_seq_cst);
    (holders != nullptr ? holders->received : s.rx.kernel_bytes).fetch_add(n, std::memory_order_relaxed);
}

} // namespace vma::sock
