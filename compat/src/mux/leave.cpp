// SPDX-License-Identifier: BSD-2-Clause
// An epoll set that is the kernel's alone from now on, while the program keeps it: before a filter of system calls
// (engine/sandbox.hpp).
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
