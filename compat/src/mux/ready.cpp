// SPDX-License-Identifier: BSD-2-Clause
// The ready list of an epoll set: entries that may have something to report, in the order in which they are looked at.
// It follows the kernel's: a level-triggered entry that was ready goes to the end, an edge-triggered one comes back
// with its next event, and who leaves wakes the next sleeper while the list isn't empty.
#include <algorithm>

#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/wait/thread_record.hpp"

namespace vma::mux {

namespace {

// One kick at a time: who is woken takes all there is, and wakes the next one if something is left.
void kick_locked(Set &set)
{
    if (set.kicked || set.asleep.load(std::memory_order_relaxed) == 0)
        return;
    set.kicked = true;
    const std::uint64_t one = 1;
    if (set.kick_fd >= 0)
        (void)!libc::uncancelled::write(set.kick_fd, &one, sizeof one); // an edge, whatever the counter is; never read
}

// Onto the list between two neighbours, of which one at its end is nullptr.
void put_between(Set &set, Entry *prev, Entry &entry, Entry *next)
{
    entry.ready_prev = prev;
    entry.ready_next = next;
    (prev != nullptr ? prev->ready_next : set.head) = &entry;
    (next != nullptr ? next->ready_prev : set.tail) = &entry;
    entry.queued = true;
    set.ready.store(set.ready.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void append(Set &set, Entry &entry)
{
    put_between(set, set.tail, entry, nullptr);
}

// ready_lock held. Whoever watches the set is told of each event, also of an entry that is on the list already.
void queue(Set &set, Entry &entry, bool bare_end = false)
{
    ++entry.edges;
    entry.bare_end = bare_end && (entry.bare_end || !entry.queued);
    if (entry.queued)
        return;
    append(set, entry);
    if (t_wait.polling != &set)
        kick_locked(set);
}

// An entry in the middle of being looked at: what it was when it left the list.
struct Picked {
    Entry *entry;
    void *source;
    bool nested;
    bool bare_end;
    int fd;
    std::uint32_t generation;
    std::uint32_t events;
    std::uint32_t found;
};

unsigned pick(Set &set, Picked *picked, unsigned most, std::uint64_t &round)
{
    LockGuard guard(set.ready_lock);
    if (round == 0)
        round = ++set.round;
    unsigned count = 0;
    for (Entry *next = set.head; count < most && next != nullptr;) {
        Entry &entry = *next;
        next = entry.ready_next;
        if (entry.since >= round)
            continue;
        unqueue(set, entry);
        picked[count++] = {&entry,   entry.source,     entry.nested, entry.bare_end,
                           entry.fd, entry.generation, entry.events, 0};
    }
    return count;
}

// To the front, in their order: they are looked at later.
[[gnu::cold, gnu::noinline]] void put_back(Set &set, const Picked *picked, unsigned count)
{
    LockGuard guard(set.ready_lock);
    while (count-- > 0) {
        Entry &entry = *picked[count].entry;
        if (entry.set.load(std::memory_order_relaxed) != &set || entry.generation != picked[count].generation ||
            entry.disabled || entry.place.load(std::memory_order_relaxed) != Place::kTaken)
            continue; // whoever changed it has seen to it
        entry.bare_end = picked[count].bare_end && (entry.bare_end || !entry.queued);
        unqueue(set, entry);
        put_between(set, nullptr, entry, set.head);
    }
}

constexpr std::uint32_t kWaitsForKernel = 64; // reports

constexpr std::uint32_t kEnd = EPOLLRDHUP | EPOLLHUP;

// What could be read before is no event, edge-triggered; nor is that no more comes by the engine. But what the kernel
// has behind that may have told of itself before.
bool is_premature(const Picked &picked, const sock::Socket &s, std::uint32_t found)
{
    return picked.bare_end && (picked.events & EPOLLET) != 0 && (found & (kEnd | EPOLLERR)) == 0 &&
           !sock::waits_for_kernel(s, EPOLLIN);
}

// What was sent before this look belongs to the same event, edge-triggered: another thread may be taking it off the
// queue, and have told of what it makes possible first. What puts the entry on the list meanwhile is seen here.
[[gnu::cold, gnu::noinline]] std::uint32_t look_behind(Set &set, Picked &picked, std::uint32_t mask)
{
    Entry &entry = *picked.entry;
    poll_engine(set, sock::engine_drain);
    {
        LockGuard guard(set.ready_lock);
        const bool same = entry.set.load(std::memory_order_relaxed) == &set && entry.generation == picked.generation;
        if (same && entry.queued) {
            picked.bare_end &= entry.bare_end;
            unqueue(set, entry);
        }
    }
    return sock::ready_events(*static_cast<sock::Socket *>(picked.source), picked.fd, mask) & mask;
}

std::uint32_t look_at(Set &set, Picked &picked)
{
    std::uint32_t mask = (picked.events & ~kControlBits) | kAlwaysReported;
    if (picked.nested)
        return set_readable(*static_cast<Set *>(picked.source)) ? (EPOLLIN | EPOLLRDNORM) & mask : 0;
    if ((picked.events & EPOLLET) != 0)
        mask |= EPOLLRDHUP; // for repeated()
    if ((picked.events & EPOLLRDHUP) != 0 && !set.tells_ends.load(std::memory_order_relaxed)) [[unlikely]]
        set.tells_ends.store(true, std::memory_order_relaxed);
    sock::Socket &s = *static_cast<sock::Socket *>(picked.source);
    std::uint32_t found = sock::ready_events(s, picked.fd, mask) & mask;
    if ((picked.events & EPOLLET) != 0 && (mask & EPOLLIN) != 0 && found != 0 && (found & EPOLLIN) == 0) [[unlikely]]
        found = look_behind(set, picked, mask);
    found = sock::screen_events(s, picked.fd, found);
    // Of an end also where there are bytes before it to tell of.
    const std::uint32_t awaited = (found == 0 ? mask & (EPOLLIN | EPOLLRDNORM) : 0) | (mask & EPOLLRDHUP);
    if (sock::waits_for_kernel(s, awaited))
        set.kernel_waits.store(kWaitsForKernel, std::memory_order_relaxed);
    return is_premature(picked, s, found) ? 0 : found;
}

// The end of the peer's bytes is announced twice, by the engine and by the kernel. Who was told of it with the first,
// edge-triggered, doesn't hear of it again. (Whoever waits for room to send may: the kernel says that together.) An
// error that ends nothing is the kernel's alone to announce, and the next one is another.
bool repeated(const Entry &entry, std::uint32_t events)
{
    return (entry.events & EPOLLET) != 0 && (entry.events & EPOLLOUT) == 0 && (events & kEnd) != 0 &&
           (events & (kEnd | EPOLLERR) & ~entry.told) == 0;
}

// Reports what was found, unless the registration has changed meanwhile (whoever changed it has queued it again).
int settle(Set &set, const Picked *picked, unsigned count, epoll_event *out, std::uint64_t round)
{
    LockGuard guard(set.ready_lock);
    int n = 0;
    for (unsigned i = 0; i < count; ++i) {
        Entry &entry = *picked[i].entry;
        const std::uint32_t found = picked[i].found & (picked[i].events | kAlwaysReported);
        if (found == 0 || entry.set.load(std::memory_order_relaxed) != &set ||
            entry.generation != picked[i].generation || entry.disabled || repeated(entry, picked[i].found))
            continue;
        entry.told = picked[i].found;
        if (entry.since < round) // else another thread's later round has had it meanwhile
            entry.since = round;
        out[n].events = found;
        out[n++].data = entry.data;
        if ((entry.events & EPOLLONESHOT) != 0) {
            entry.disabled = true;
            if (entry.queued)
                unqueue(set, entry);
        } else if ((entry.events & EPOLLET) == 0 && !entry.queued) {
            append(set, entry);
        }
    }
    return n;
}

void take_news(std::uint64_t address, std::uint32_t events)
{
    if (!g_mux.entries.holds(address))
        return;
    Entry &entry = *reinterpret_cast<Entry *>(address);
    Set *const set = entry.set.load(std::memory_order_acquire);
    if (set == nullptr)
        return;
    sock::Socket *socket = nullptr;
    bool wanted = false;
    {
        LockGuard guard(set->ready_lock);
        if (entry.set.load(std::memory_order_relaxed) != set ||
            entry.place.load(std::memory_order_relaxed) != Place::kTaken)
            return; // closed, or given back, since the kernel wrote this
        socket = entry.nested ? nullptr : entry.socket();
        wanted = (events & (entry.events | kAlwaysReported)) != 0 && !repeated(entry, events);
    }
    if (socket != nullptr)
        sock::note_kernel_events(*socket, events);
    if (wanted)
        requeue(*set, entry);
}

} // namespace

void unqueue(Set &set, Entry &entry)
{
    if (!entry.queued)
        return;
    (entry.ready_prev != nullptr ? entry.ready_prev->ready_next : set.head) = entry.ready_next;
    (entry.ready_next != nullptr ? entry.ready_next->ready_prev : set.tail) = entry.ready_prev;
    entry.queued = false;
    set.ready.store(set.ready.load(std::memory_order_relaxed) - 1, std::memory_order_release);
}

void notify_entry(sock::Watcher *watcher, std::uint32_t events)
{
    static_assert(offsetof(Entry, watcher) == 0);
    Entry &entry = *reinterpret_cast<Entry *>(watcher);
    Set &set = *entry.set.load(std::memory_order_relaxed);
    const bool nothing_before = (events & sock::kNothingBefore) != 0;
    const bool bare_end = (events & sock::kBeforeEnd) != 0;
    const bool kernel_tells = (events & sock::kKernelTells) != 0;
    events &= kernel_tells ? 0 : ~(sock::kNothingBefore | sock::kBeforeEnd);
    {
        LockGuard guard(set.ready_lock);
        if (std::uint32_t none = 0; kernel_tells)
            set.kernel_waits.compare_exchange_strong(none, 1, std::memory_order_relaxed);
        if (!nothing_before)
            set.kernel_first.store(true, std::memory_order_relaxed);
        if (entry.disabled || entry.place.load(std::memory_order_relaxed) != Place::kTaken ||
            (events & (entry.events | kAlwaysReported)) == 0 || repeated(entry, events))
            return;
        queue(set, entry, bare_end);
    }
    notify_watchers(set);
}

void requeue(Set &set, Entry &entry)
{
    {
        LockGuard guard(set.ready_lock);
        if (entry.set.load(std::memory_order_relaxed) != &set || entry.disabled ||
            entry.place.load(std::memory_order_relaxed) != Place::kTaken)
            return;
        set.kernel_first.store(true, std::memory_order_relaxed);
        queue(set, entry);
    }
    notify_watchers(set);
}

void kick(Set &set)
{
    LockGuard guard(set.ready_lock);
    kick_locked(set);
}

unsigned poll_engine(Set &set, unsigned (*poll)(sock::RingMask))
{
    const libc::Stretch stretch; // no handler waits for a set, or jumps, while it is set
    t_wait.polling = &set;
    const unsigned events = poll(set.rings.load(std::memory_order_relaxed));
    t_wait.polling = nullptr;
    return events;
}

void drain_rings(Set &set)
{
    const sock::RingMask rings = set.rings.load(std::memory_order_relaxed);
    const unsigned looks = (rings & (rings - 1)) != 0 ? kMostLooks : 1;
    for (unsigned i = 0; i < looks && poll_engine(set, sock::engine_drain) != 0; ++i) {
    }
}

std::uint64_t begin_round(Set &set)
{
    LockGuard guard(set.ready_lock);
    return ++set.round;
}

int harvest(Set &set, epoll_event *out, int max, unsigned most, std::uint64_t round, Heeds heeds)
{
    constexpr unsigned kBatch = 32;
    const bool heeds_kernel = heeds == Heeds::kKernel;
    // They come before what they are about is seen.
    const bool heeds_marks = heeds == Heeds::kMarks || (heeds_kernel && is_mixed(set));
    unsigned budget = most; // ends although entries come back all the time
    int n = 0;
    while (budget > 0 && n < max) {
        const libc::Stretch stretch; // entries that are picked are on no list until they are settled
        Picked picked[kBatch];
        const unsigned room = static_cast<unsigned>(max - n);
        unsigned count = pick(set, picked, std::min({room, budget, kBatch}), round);
        if (count == 0)
            break;
        budget -= count;
        for (unsigned i = 0; i < count; ++i) {
            picked[i].found = look_at(set, picked[i]);
            const bool later = heeds_marks && set.kernel_first.load(std::memory_order_acquire);
            if (!later && (!heeds_kernel || set.kernel_waits.load(std::memory_order_relaxed) == 0)) [[likely]]
                continue;
            const unsigned good = later ? i : i + 1;
            put_back(set, picked + good, count - good);
            count = good;
            budget = 0;
        }
        n += settle(set, picked, count, out + n, round);
    }
    return n;
}

namespace {

// False: there is something on the list.
bool go_to_sleep(Set &set)
{
    LockGuard guard(set.ready_lock);
    if (set.head != nullptr)
        return false;
    set.asleep.store(set.asleep.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return true;
}

void wake_up(Set &set)
{
    LockGuard guard(set.ready_lock);
    set.asleep.store(set.asleep.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

} // namespace

SetSleep::SetSleep(Set &set)
    : set_(set), outer_(libc::signal_wake_fd()), process_(g_waits.process.load(std::memory_order_relaxed))
{
}

bool SetSleep::begin()
{
    const libc::Stretch stretch;
    counted_ = go_to_sleep(set_);
    if (counted_)
        libc::set_signal_wake_fd(set_.kick_fd);
    return counted_;
}

bool SetSleep::arm(sock::RingMask rings)
{
    const libc::Stretch stretch;
    const bool idle = sock::engine_arm(rings);
    if (idle)
        armed_ = rings;
    return idle;
}

void SetSleep::end()
{
    const libc::KeepErrno keep;
    const libc::Stretch stretch;
    const bool is_child = process_ != g_waits.process.load(std::memory_order_relaxed);
    if (counted_)
        libc::set_signal_wake_fd(is_child ? -1 : outer_);
    if (armed_ != 0 && !is_child)
        sock::engine_woken(armed_);
    if (counted_ && !is_child)
        wake_up(set_);
    counted_ = false;
    armed_ = 0;
}

void relay(Set &set)
{
    sock::engine_leave(set.rings.load(
        std::memory_order_relaxed)); // sleepers rely on an armed queue, and this thread may have used up the wake-up
    if (set.asleep.load(std::memory_order_relaxed) == 0) [[likely]]
        return;
    LockGuard guard(set.ready_lock);
    if (set.head != nullptr)
        kick_locked(set);
}

bool drain_side(Set &set)
{
    constexpr int kBatch = 32;
    bool engine = false;
    const int side = set.side_fd.load(std::memory_order_acquire);
    epoll_event events[kBatch];
    int n = side >= 0 ? kBatch : 0;
    while (n == kBatch) {
        const libc::Stretch stretch; // the kernel tells it once
        n = libc::uncancelled::epoll_now(side, events, kBatch);
        for (int i = 0; i < n; ++i) {
            if (events[i].data.u64 == kEngineMarker) {
                engine = true;
            } else if (events[i].data.u64 == kKickMarker) {
                LockGuard guard(set.ready_lock);
                set.kicked = false;
            } else {
                take_news(events[i].data.u64, events[i].events);
            }
        }
    }
    return engine;
}

void drain_side_for_others(Set &set)
{
    const bool engine = drain_side(set);
    if (engine || set.ready.load(std::memory_order_relaxed) != 0)
        kick(set);
}

} // namespace vma::mux
