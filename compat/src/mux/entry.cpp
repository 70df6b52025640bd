// SPDX-License-Identifier: BSD-2-Clause
// Entries of epoll sets: where they come from, and the two lists each is on: its set's and its source's (a socket, or a
// set inside of another). There is no table by descriptor: a source has few entries, and its list is the index.
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/mux.hpp"

namespace vma::mux {

sock::MuxHook &hook_of(void *source, bool nested)
{
    return nested ? static_cast<Set *>(source)->hook : sock::mux_hook(*static_cast<sock::Socket *>(source));
}

sock::MuxHook &hook_of(const Entry &entry)
{
    return hook_of(entry.source, entry.nested);
}

Entry *find_entry(Set &set, void *source, bool nested, int fd)
{
    sock::MuxHook &hook = hook_of(source, nested);
    LockGuard guard(hook.lock);
    for (auto *entry = static_cast<Entry *>(hook.entries); entry != nullptr; entry = entry->source_next)
        if (entry->set.load(std::memory_order_relaxed) == &set && entry->fd == fd &&
            entry->place.load(std::memory_order_relaxed) != Place::kStuck)
            return entry;
    return nullptr;
}

Entry *new_entry(Set &set, void *source, bool nested, int fd)
{
    Entry *const entry = g_mux.entries.take();
    if (entry == nullptr)
        return nullptr;
    {
        LockGuard guard(set.ready_lock);
        entry->watcher.notify = notify_entry;
        entry->source = source;
        entry->nested = nested;
        entry->fd = fd;
        entry->queued = false;
        entry->disabled = false;
        entry->since = 0;
        ++entry->generation;
        entry->place.store(Place::kNowhere, std::memory_order_relaxed);
        entry->set.store(&set, std::memory_order_release);
    }
    entry->set_prev = nullptr;
    entry->set_next = set.entries;
    if (set.entries != nullptr)
        set.entries->set_prev = entry;
    set.entries = entry;
    set.tracked.fetch_add(1, std::memory_order_relaxed);

    sock::MuxHook &hook = hook_of(*entry);
    LockGuard guard(hook.lock);
    auto *const first = static_cast<Entry *>(hook.entries);
    entry->source_prev = nullptr;
    entry->source_next = first;
    if (first != nullptr)
        first->source_prev = entry;
    hook.entries = entry;
    return entry;
}

bool tells_edges(sock::Socket &s)
{
    sock::MuxHook &hook = sock::mux_hook(s);
    LockGuard guard(hook.lock);
    for (auto *entry = static_cast<Entry *>(hook.entries); entry != nullptr; entry = entry->source_next) {
        Set *const set = entry->set.load(std::memory_order_acquire);
        if (set == nullptr || entry->place.load(std::memory_order_relaxed) != Place::kTaken)
            continue;
        LockGuard ready(set->ready_lock);
        if ((entry->events & EPOLLET) != 0)
            return true;
    }
    return false;
}

void drop_entry(Set &set, Entry &entry)
{
    {
        sock::MuxHook &hook = hook_of(entry);
        LockGuard guard(hook.lock);
        if (entry.source_prev != nullptr)
            entry.source_prev->source_next = entry.source_next;
        else
            hook.entries = entry.source_next;
        if (entry.source_next != nullptr)
            entry.source_next->source_prev = entry.source_prev;
    }
    if (entry.set_prev != nullptr)
        entry.set_prev->set_next = entry.set_next;
    else
        set.entries = entry.set_next;
    if (entry.set_next != nullptr)
        entry.set_next->set_prev = entry.set_prev;
    set.tracked.fetch_sub(1, std::memory_order_relaxed);

    {
        LockGuard guard(set.ready_lock);
        ++entry.generation;
        entry.place.store(Place::kFree, std::memory_order_relaxed);
        entry.set.store(nullptr, std::memory_order_release);
    }
    g_mux.entries.give(&entry);
}

} // namespace vma::mux
