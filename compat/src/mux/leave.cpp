// SPDX-License-Identifier: BSD-2-Clause
// An epoll set that is the kernel's alone from now on, while the program keeps it: before a filter of system calls
// (engine/sandbox.hpp), and before threads have tables of descriptors of their own.
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/wait/thread_record.hpp"

namespace vma::mux {

namespace {

void put_as_asked(Set &set, const Entry &entry, int op, std::uint32_t events)
{
    epoll_event event = {};
    event.events = events;
    event.data = entry.data;
    libc::real.epoll_ctl(set.epfd, op, entry.fd, &event);
}

// False: something in it has news of ours still.
bool leave(int epfd)
{
    Set *const set = set_of(epfd);
    if (set == nullptr)
        return true;
    const LockGuard guard(set->lock);
    for (Entry *entry = set->entries, *next = nullptr; entry != nullptr; entry = next) {
        next = entry->set_next;
        switch (entry->place.load(std::memory_order_relaxed)) {
        case Place::kTagged:
            if (!is_disabled(*set,
                             *entry)) // one that has fired gets its data back with the program's next EPOLL_CTL_MOD
                put_as_asked(*set, *entry, EPOLL_CTL_MOD, entry->events);
            break;
        case Place::kNowhere: // has fired while it was ours: nothing is reported but an end, until EPOLL_CTL_MOD
            put_as_asked(*set, *entry, EPOLL_CTL_ADD, EPOLLONESHOT);
            break;
        case Place::kParked:
            discard(*set, *entry);
            break;
        case Place::kTaken:
            return false;
        case Place::kKernel:
        case Place::kStuck:
        case Place::kFree:
            break;
        }
    }
    return true;
}

} // namespace

namespace {

void hand_over(Set &set, Entry &entry)
{
    if (entry.place.load(std::memory_order_relaxed) == Place::kTaken) // bytes are left to read that the kernel has not
        give_back(set, entry);
    switch (entry.place.load(std::memory_order_relaxed)) {
    case Place::kParked:
        return discard(set, entry);
    case Place::kTagged:
        if (!is_disabled(set, entry))
            put_as_asked(set, entry, EPOLL_CTL_MOD, entry.events);
        break;
    case Place::kNowhere:
        put_as_asked(set, entry, EPOLL_CTL_ADD, EPOLLONESHOT);
        break;
    default:
        break;
    }
    drop_entry(set, entry);
}

} // namespace

void let_go_of_set(int epfd)
{
    Set *const set = set_of(epfd);
    if (set == nullptr)
        return;
    bool was_taken = false;
    {
        const LockGuard guard(set->lock);
        was_taken = is_taken(*set);
        while (set->entries != nullptr)
            hand_over(*set, *set->entries);
        for (const int own : {set->side_fd.load(std::memory_order_relaxed), set->kick_fd})
            libc::real.epoll_ctl(epfd, EPOLL_CTL_DEL, own, nullptr);
        set->storm.store(false, std::memory_order_relaxed);
        set_slot(epfd).store(nullptr, std::memory_order_seq_cst);
    }
    tell_taken(*set, was_taken);
}

// All before any is forgotten: an outer one may hold an inner one.
bool leave_sets()
{
    bool all = true;
    const int highest = highest_set();
    for (int fd = 0; fd <= highest; ++fd)
        all = leave(fd) && all;
    for (int fd = 0; all && fd <= highest; ++fd)
        epoll_closed(fd);
    synchronise_without_membarrier();
    return all;
}

} // namespace vma::mux
