// SPDX-License-Identifier: BSD-2-Clause
// epoll_ctl for tracked sockets and nested sets. The kernel's verdict comes first and is mirrored; only an entry that
// is taken over, which the kernel's set doesn't have at the time, is judged here by the kernel's rules.
#include <errno.h>

#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/fail.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/vfork.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/wait/thread_record.hpp"

namespace vma::mux {

namespace {

using libc::fail;

// What an epoll_ctl is about.
struct Target {
    void *source;
    bool nested;
    int fd;

    bool offloaded() const
    {
        return nested ? is_taken(*static_cast<Set *>(source))
                      : sock::is_offloaded(*static_cast<sock::Socket *>(source));
    }
    // What others would see of it is not the kernel's alone.
    bool shows_ours() const { return offloaded() || (nested && static_cast<Set *>(source)->side_hangs); }
    bool still_open() const { return nested ? set_of(fd) == source : sock::lookup(fd) == source; }
};

void describe(Set &set, Entry &entry, const epoll_event &event)
{
    LockGuard guard(set.ready_lock);
    entry.events = event.events;
    entry.data = event.data;
    entry.disabled = false;
    entry.told = 0;
    ++entry.generation;
}

void give_data_back(Set &set, const Entry &entry)
{
    epoll_event event = {entry.events, entry.data};
    libc::real.epoll_ctl(set.epfd, EPOLL_CTL_MOD, entry.fd, &event);
}

// What is left to do about the target once no lock is held.
struct Left {
    bool unread = false;  // it couldn't be given back as a whole, and is followed although other processes have the set
    bool unmoved = false; // an entry couldn't be taken over: the source must stay with the kernel
    bool shared = false;  // nothing was done: the source goes back to the kernel first
};

// A new registration: to the kernel, and on to the side set if its source is offloaded. Who waits in another process,
// for this set or one around it, hears what the kernel says of it from the moment it is in: of a connection that goes
// by a port, that it has ended. So such a source is the kernel's before it is registered.
int enter(Set &set, const Target &target, const epoll_event &event, int op, Left &left)
{
    Entry *const entry = new_entry(set, target.source, target.nested, target.fd);
    if (entry == nullptr) {
        left.unmoved = true;
        epoll_event copy = event;
        return libc::real.epoll_ctl(set.epfd, op, target.fd, &copy);
    }
    describe(set, *entry, event);
    full_fence(); // either the source's change finds the entry, and waits for the set's lock, or we see the change
    const bool offloaded = target.offloaded();
    if (!left.unread && target.shows_ours() && is_seen_by_others(set)) {
        left.shared = true;
        drop_entry(set, *entry);
        return -1;
    }
    if (register_in_kernel(set, *entry, op) != 0) {
        const int error = errno;
        drop_entry(set, *entry);
        return fail(error);
    }
    if (offloaded && target.offloaded()) {
        left.unmoved = !take_over(set, *entry);
        full_fence(); // likewise
        if (!target.offloaded() && entry->place.load(std::memory_order_relaxed) == Place::kTaken)
            give_back(set, *entry);
    }
    if (!target.still_open()) { // closed by another thread while we were here
        if (entry->place.load(std::memory_order_relaxed) == Place::kTaken)
            detach(set, *entry);
        else if (libc::tables_apart()) // the number means nothing to us any more, and the kernel is to have no tag
            give_data_back(set, *entry);
        drop_entry(set, *entry);
    }
    return 0;
}

int modify_in_kernel(Set &set, Entry &entry, const epoll_event &event)
{
    const epoll_event old = {entry.events, entry.data};
    const bool was_disabled = is_disabled(set, entry);
    describe(set, entry, event);
    const int op = entry.place.load(std::memory_order_relaxed) == Place::kNowhere ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (register_in_kernel(set, entry, op) == 0 ||
        (op == EPOLL_CTL_ADD && errno == EEXIST && register_in_kernel(set, entry, EPOLL_CTL_MOD) == 0))
        return 0; // or another process has put it back
    LockGuard guard(set.ready_lock);
    entry.events = old.events;
    entry.data = old.data;
    entry.disabled = was_disabled;
    --entry.generation;
    return -1;
}

int add(Set &set, const Target &target, const epoll_event &event, Left &left)
{
    Entry *const old = find_entry(set, target.source, target.nested, target.fd);
    if (old != nullptr) {
        const Place place = old->place.load(std::memory_order_relaxed);
        if (place == Place::kTaken || place == Place::kNowhere)
            return fail(EEXIST);
        if (place == Place::kParked) {
            describe(set, *old, event);
            unpark(set, *old);
            return 0;
        }
        epoll_event copy = event;
        if (libc::real.epoll_ctl(set.epfd, EPOLL_CTL_ADD, target.fd, &copy) != 0)
            return -1;
        return modify_in_kernel(set, *old, event); // the kernel had lost it: closed and opened behind our back
    }
    return enter(set, target, event, EPOLL_CTL_ADD, left);
}

int modify(Set &set, const Target &target, const epoll_event &event, Left &left)
{
    Entry *const entry = find_entry(set, target.source, target.nested, target.fd);
    if (entry == nullptr)
        return enter(set, target, event, EPOLL_CTL_MOD, left);
    const Place place = entry->place.load(std::memory_order_relaxed);
    if (place == Place::kParked)
        return fail(ENOENT);
    const bool ours = place == Place::kTaken || place == Place::kNowhere;
    if (ours && ((event.events | entry->events) & EPOLLEXCLUSIVE) != 0)
        return fail(EINVAL);
    if (place != Place::kTaken)
        return modify_in_kernel(set, *entry, event);
    describe(set, *entry, event);
    requeue(set, *entry);
    return 0;
}

int remove(Set &set, const Target &target)
{
    Entry *const entry = find_entry(set, target.source, target.nested, target.fd);
    if (entry == nullptr)
        return libc::real.epoll_ctl(set.epfd, EPOLL_CTL_DEL, target.fd, nullptr);
    int result = 0;
    switch (entry->place.load(std::memory_order_relaxed)) {
    case Place::kParked:
        return fail(ENOENT);
    case Place::kTaken:
        if (!target.nested && !is_seen_by_others(set)) {
            park(set, *entry);
            return 0;
        }
        leave_side(set, *entry);
        detach(set, *entry);
        break;
    case Place::kNowhere:
        if (set.shared.load(std::memory_order_relaxed) != 0) // another process may have put it back
            libc::real.epoll_ctl(set.epfd, EPOLL_CTL_DEL, target.fd, nullptr);
        break;
    default:
        result = libc::real.epoll_ctl(set.epfd, EPOLL_CTL_DEL, target.fd, nullptr);
    }
    const int error = errno;
    drop_entry(set, *entry);
    errno = error;
    return result;
}

int change(Set &set, int op, const Target &target, const epoll_event *event, Left &left)
{
    bool was_taken = false;
    int result = 0;
    {
        LockGuard guard(set.lock);
        was_taken = is_taken(set);
        if (op == EPOLL_CTL_ADD)
            result = add(set, target, *event, left);
        else if (op == EPOLL_CTL_MOD)
            result = modify(set, target, *event, left);
        else
            result = remove(set, target);
        if (result == 0)
            note_change(set);
    }
    const int error = errno;
    if (!tell_taken(set, was_taken) && result == 0 && is_seen_by_others(set))
        give_to_kernel(target.source, target.nested); // meanwhile put into a set that other processes have
    errno = error;
    return result;
}

// False: it has bytes that are unread, which the kernel will not tell of.
bool given_back(const Target &target)
{
    const libc::KeepErrno keep;
    give_to_kernel(target.source, target.nested);
    return !target.offloaded();
}

int control(Set &set, int op, const Target &target, const epoll_event *event)
{
    const libc::Stretch stretch; // a handler that jumps finds it done, and told
    Left left;
    int result = change(set, op, target, event, left);
    while (left.shared) {
        left = {.unread = !given_back(target)};
        result = change(set, op, target, event, left);
    }
    if (left.unmoved && result == 0 && !target.nested) {
        const libc::KeepErrno keep;
        sock::pin_to_kernel(*static_cast<sock::Socket *>(target.source), "its epoll set can't hold it");
    }
    return result;
}

// They are only counted, and those that are closed without EPOLL_CTL_DEL go on being counted.
int control_untracked(Set &set, int epfd, int op, int fd, epoll_event *event)
{
    const libc::Stretch stretch; // a handler that jumps finds it counted
    const int result = libc::real.epoll_ctl(epfd, op, fd, event);
    if (result == 0 && op == EPOLL_CTL_ADD)
        set.added.fetch_add(1, std::memory_order_relaxed);
    else if (result == 0 && op == EPOLL_CTL_DEL && set.added.load(std::memory_order_relaxed) != 0)
        set.added.fetch_sub(1, std::memory_order_relaxed);
    if (result == 0 && set.shared.load(std::memory_order_relaxed) != 0) {
        const LockGuard guard(set.lock);
        note_change(set);
    }
    return result;
}

} // namespace

int epoll_control(int epfd, int op, int fd, epoll_event *event)
{
    sock::Socket *const socket = sock::lookup(fd);
    Set *const inner = socket == nullptr ? set_of(fd) : nullptr;
    Set *const set = set_of(epfd);
    const bool known_op = op == EPOLL_CTL_ADD || op == EPOLL_CTL_MOD || op == EPOLL_CTL_DEL;
    if (set == nullptr || !known_op)
        return libc::real.epoll_ctl(epfd, op, fd, event);
    if (socket == nullptr && inner == nullptr)
        return control_untracked(*set, epfd, op, fd, event);
    if (op != EPOLL_CTL_DEL && (event == nullptr || !libc::can_read(event, sizeof *event)))
        return libc::real.epoll_ctl(epfd, op, fd, event); // which refuses it before it looks at anything else
    const Target target = {socket != nullptr ? static_cast<void *>(socket) : inner, socket == nullptr, fd};
    return control(*set, op, target, event);
}

} // namespace vma::mux
