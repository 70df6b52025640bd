// SPDX-License-Identifier: BSD-2-Clause
// An epoll set as something that others wait for: a set around it, poll(), select(). To them it is a source like an
// offloaded socket, with watchers that hear when its ready list gets an entry, and a readiness that is asked for
// outside of locks.
#include <poll.h>

#include "compat/src/base/fence.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/mux/epoll_set.hpp"

namespace vma::mux {

namespace {

// An entry on the list, as it was found; it stays there while it is looked at, so that no other thread misses it.
struct Looking {
    Entry *entry;
    void *source;
    bool nested;
    int fd;
    std::uint32_t generation;
    std::uint32_t edges;
    std::uint32_t mask;
};

bool first_of(Set &set, Looking &looking)
{
    LockGuard guard(set.ready_lock);
    Entry *const entry = set.head;
    if (entry == nullptr)
        return false;
    looking = {entry,
               entry->source,
               entry->nested,
               entry->fd,
               entry->generation,
               entry->edges,
               (entry->events & ~kControlBits) | kAlwaysReported};
    return true;
}

bool ready(const Looking &looking)
{
    if (looking.nested)
        return (looking.mask & (EPOLLIN | EPOLLRDNORM)) != 0 && set_readable(*static_cast<Set *>(looking.source));
    return (sock::ready_events(*static_cast<sock::Socket *>(looking.source), looking.fd, looking.mask) &
            looking.mask) != 0;
}

// Takes it off the list. False: it had another event or was changed while it was looked at, so it has to be looked at
// again: nobody is told of an event of an entry that is on the list.
bool not_ready(Set &set, const Looking &looking)
{
    LockGuard guard(set.ready_lock);
    Entry &entry = *looking.entry;
    if (entry.set.load(std::memory_order_relaxed) != &set || entry.generation != looking.generation ||
        entry.edges != looking.edges)
        return false;
    unqueue(set, entry);
    return true;
}

} // namespace

bool list_ready(Set &set)
{
    Looking looking = {};
    for (std::uint32_t budget = set.ready.load(std::memory_order_acquire); budget > 0;) {
        if (!first_of(set, looking))
            return false;
        if (ready(looking))
            return true;
        if (not_ready(set, looking))
            --budget;
    }
    return false;
}

bool set_readable(Set &set)
{
    const libc::Stretch stretch; // who is counted in it counts himself out
    set.users.fetch_add(1, std::memory_order_seq_cst);
    bool readable = false;
    if (!set.dead.load(std::memory_order_seq_cst)) {
        const bool engine = drain_side(set); // its marker in the kernel set must not be taken for an event
        readable = list_ready(set);
        pollfd kernel = {set.epfd, POLLIN, 0};
        readable = readable || libc::uncancelled::poll_now(&kernel, 1) > 0;
        if (engine || set.ready.load(std::memory_order_relaxed) != 0)
            kick(set); // the drained wake-up may have been for one who sleeps in it
    }
    if (set.users.fetch_sub(1, std::memory_order_seq_cst) == 1)
        recycle_if_unused(set);
    return readable;
}

void watch_set(Set &set, sock::Watcher &watcher)
{
    LockGuard guard(set.watch_lock);
    sock::Watcher *const first = set.watchers.load(std::memory_order_relaxed);
    watcher.in_set = true;
    watcher.prev = nullptr;
    watcher.next = first;
    if (first != nullptr)
        first->prev = &watcher;
    set.watchers.store(&watcher, std::memory_order_seq_cst);
    sock::fence_after_exchange(); // who watches looks now
}

void unwatch_set(Set &set, sock::Watcher &watcher)
{
    LockGuard guard(set.watch_lock);
    if (!watcher.in_set)
        return;
    watcher.in_set = false;
    if (watcher.prev != nullptr)
        watcher.prev->next = watcher.next;
    else
        set.watchers.store(watcher.next, std::memory_order_relaxed);
    if (watcher.next != nullptr)
        watcher.next->prev = watcher.prev;
    watcher.next = watcher.prev = nullptr;
}

// What it is about was put on the list under ready_lock, whose release is an exchange.
void notify_watchers(Set &set)
{
    sock::fence_after_exchange();
    if (set.watchers.load(std::memory_order_seq_cst) == nullptr) [[likely]]
        return;
    LockGuard guard(set.watch_lock);
    sock::Watcher *next = nullptr;
    for (sock::Watcher *watcher = set.watchers.load(std::memory_order_relaxed); watcher != nullptr; watcher = next) {
        next = watcher->next;
        watcher->notify(watcher, EPOLLIN | EPOLLRDNORM);
    }
}

} // namespace vma::mux
