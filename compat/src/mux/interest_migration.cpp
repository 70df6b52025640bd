// SPDX-License-Identifier: BSD-2-Clause
// How a registration moves between the program's kernel set and our side set, when its socket becomes offloaded or
// kernel-only, and how waits that sleep in the kernel set alone learn of it.
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "compat/src/base/clock.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/wait/thread_record.hpp"

namespace vma::mux {

namespace {

bool control(int epfd, int op, int fd, std::uint32_t events, std::uint64_t data)
{
    epoll_event event = {};
    event.events = events;
    event.data.u64 = data;
    return libc::real.epoll_ctl(epfd, op, fd, &event) == 0;
}

int private_number(int fd)
{
    return fd < 0 ? fd : libc::make_private(fd);
}

// The side set hangs in the kernel set under one marker, so that a sleep in the kernel set ends by its news too.
bool open_side(Set &set)
{
    if (const int side = set.side_fd.load(std::memory_order_relaxed); side >= 0) {
        if (!set.side_hangs)
            set.side_hangs = control(set.epfd, EPOLL_CTL_ADD, side, EPOLLIN | EPOLLET, side_marker(set));
        return set.side_hangs;
    }
    const int side = private_number(libc::real.epoll_create1(EPOLL_CLOEXEC));
    const int kick = private_number(libc::real.eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    set.filter.store(true, std::memory_order_seq_cst);
    if (side < 0 || kick < 0 || !control(side, EPOLL_CTL_ADD, kick, EPOLLIN | EPOLLET, kKickMarker) ||
        !control(set.epfd, EPOLL_CTL_ADD, side, EPOLLIN | EPOLLET, side_marker(set))) {
        VMA_LOG(
            kWarn,
            "epoll set fd=%d: cannot make the descriptors for accelerated sockets in it: %s; those stay on the kernel",
            set.epfd.load(), strerror(errno));
        libc::close_private(kick);
        libc::close_private(side);
        return false;
    }
    set.side_hangs = true;
    LockGuard guard(set.ready_lock);
    set.kick_fd = kick;
    set.side_fd.store(side, std::memory_order_release);
    return true;
}

// Threads that went to sleep while the set was kernel-only wait for the kernel's events alone, and an epoll wake-up
// reaches one of them only. So until all are out, the kernel set holds something that is always readable.
void begin_storm(Set &set)
{
    synchronise_records();
    if (!any_kernel_only_wait(set) || set.storm.load(std::memory_order_relaxed))
        return;
    const std::uint64_t one = 1;
    (void)!libc::uncancelled::write(set.kick_fd, &one, sizeof one);
    set.storm_end = now_ns() + kNanosPerSecond;
    if (control(set.epfd, EPOLL_CTL_ADD, set.kick_fd, EPOLLIN, side_marker(set)))
        set.storm.store(true, std::memory_order_release);
}

// While it is on its way between the kernel's set and ours, where a look finds it on neither side. set.lock held.
class Move
{
public:
    explicit Move(Set &set) : set_(set) { set.moving.fetch_add(1, std::memory_order_seq_cst); }
    ~Move() { set_.moving.fetch_sub(1, std::memory_order_release); }
    Move(const Move &) = delete;
    Move &operator=(const Move &) = delete;

private:
    Set &set_;
};

void put(Set &set, Entry &entry, Place place)
{
    LockGuard guard(set.ready_lock);
    entry.place.store(place, std::memory_order_relaxed);
}

// A socket leaves the kernel set for the side set. False: as it was.
bool move_to_side(Set &set, Entry &entry)
{
    const bool in_kernel = entry.place.load(std::memory_order_relaxed) != Place::kNowhere;
    if (in_kernel && libc::real.epoll_ctl(set.epfd, EPOLL_CTL_DEL, entry.fd, nullptr) != 0) {
        put(set, entry, Place::kStuck); // closed behind our back
        return false;
    }
    if (control(set.side_fd, EPOLL_CTL_ADD, entry.fd, kSideEvents, reinterpret_cast<std::uintptr_t>(&entry)))
        return true;
    const int error = errno;
    if (in_kernel)
        register_in_kernel(set, entry, EPOLL_CTL_ADD);
    errno = error;
    return false;
}

// A nested set stays in the kernel set, as the kernel allows few levels, but with our tag: its news is news for us.
bool mute_in_kernel(Set &set, Entry &entry)
{
    const bool in_kernel = entry.place.load(std::memory_order_relaxed) != Place::kNowhere;
    return control(set.epfd, in_kernel ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, entry.fd, EPOLLIN | EPOLLET, tag_of(entry));
}

void attach(Entry &entry)
{
    if (entry.nested)
        watch_set(*entry.inner(), entry.watcher);
    else
        sock::watch(*entry.socket(), entry.watcher);
}

bool to_be_moved(const Entry &entry, bool take)
{
    switch (entry.place.load(std::memory_order_relaxed)) {
    case Place::kKernel:
    case Place::kTagged:
    case Place::kNowhere:
        return take;
    case Place::kTaken:
    case Place::kParked:
        return !take;
    case Place::kFree:
    case Place::kStuck:
        break;
    }
    return false;
}

Entry *next_to_move(sock::MuxHook &hook, bool take, Set *&set)
{
    LockGuard guard(hook.lock);
    for (auto *entry = static_cast<Entry *>(hook.entries); entry != nullptr; entry = entry->source_next) {
        if (!to_be_moved(*entry, take))
            continue;
        set = entry->set.load(std::memory_order_acquire);
        return entry;
    }
    return nullptr;
}

} // namespace

int register_in_kernel(Set &set, Entry &entry, int op)
{
    const bool tagged =
        (entry.events & EPOLLONESHOT) != 0 && set.shared.load(std::memory_order_relaxed) == 0; // others don't know it
    epoll_event event = {};
    event.events = entry.events;
    event.data = entry.data;
    if (tagged) {
        set.filter.store(true, std::memory_order_seq_cst);
        event.data.u64 = tag_of(entry);
    }
    const Place old = entry.place.load(std::memory_order_relaxed);
    put(set, entry, tagged ? Place::kTagged : Place::kKernel); // first, as it may fire at once
    const int result = libc::real.epoll_ctl(set.epfd, op, entry.fd, &event);
    if (result != 0)
        put(set, entry, old);
    return result;
}

bool take_over(Set &set, Entry &entry)
{
    if (set.dead.load(std::memory_order_relaxed) || !open_side(set))
        return false;
    const Move move(set);
    if (!(entry.nested ? mute_in_kernel(set, entry) : move_to_side(set, entry))) {
        VMA_LOG(kWarn, "epoll set fd=%d: cannot follow fd=%d: %s; that connection stays on the kernel", set.epfd.load(),
                entry.fd, strerror(errno));
        return entry.place.load(std::memory_order_relaxed) == Place::kStuck;
    }
    drain_side_for_others(set); // the kernel begins with what is true already; we look ourselves
    {
        LockGuard guard(set.ready_lock);
        ++entry.generation;
        entry.told = 0;
        entry.since = ++set.round; // looks that began before it may have heard of it by the kernel
        entry.place.store(Place::kTaken, std::memory_order_relaxed);
    }
    set.rings.fetch_or(entry.nested ? sock::kAllRings : sock::rings_of(*entry.socket()), std::memory_order_release);
    if (entry.nested || !sock::tells_what_came_before(*entry.socket()))
        set.always_asks.store(true, std::memory_order_relaxed);
    const bool first = set.taken.fetch_add(1, std::memory_order_seq_cst) == 0;
    attach(entry);
    requeue(set, entry);
    if (first)
        begin_storm(set);
    return true;
}

bool awaits_move(Set &set)
{
    full_fence(); // the kernel was asked before
    if (set.moving.load(std::memory_order_acquire) == 0) [[likely]]
        return false;
    const LockGuard guard(set.lock);
    return true;
}

void detach(Set &set, Entry &entry)
{
    if (entry.nested)
        unwatch_set(*entry.inner(), entry.watcher);
    else
        sock::unwatch(entry.watcher);
    LockGuard guard(set.ready_lock);
    unqueue(set, entry);
    ++entry.generation;
    entry.place.store(Place::kNowhere, std::memory_order_relaxed);
    set.taken.fetch_sub(1, std::memory_order_release);
}

void leave_side(Set &set, Entry &entry)
{
    libc::real.epoll_ctl(entry.nested ? set.epfd : set.side_fd, EPOLL_CTL_DEL, entry.fd, nullptr);
}

namespace {

// A forked child shares the kernel's set, and may have been the first to put it there.
bool return_to_kernel(Set &set, Entry &entry)
{
    return register_in_kernel(set, entry, EPOLL_CTL_ADD) == 0 ||
           (errno == EEXIST && register_in_kernel(set, entry, EPOLL_CTL_MOD) == 0);
}

void hear_again(Set &set, Entry &entry)
{
    const Place place = entry.place.load(std::memory_order_relaxed);
    if (place == Place::kParked)
        return drop_entry(set, entry);
    if (place != Place::kTaken)
        return;
    if (entry.nested)
        take_over_again(*entry.inner());
    put(set, entry, entry.nested ? Place::kTagged : Place::kNowhere);
    const bool concerns_us = entry.nested ? is_taken(*entry.inner()) : sock::is_offloaded(*entry.socket());
    if (!(concerns_us && take_over(set, entry)) && !is_disabled(set, entry))
        return_to_kernel(set, entry);
}

} // namespace

void take_over_again(Set &set)
{
    if (!set.inherited)
        return;
    set.inherited = false;
    LockGuard guard(set.lock);
    for (Entry *entry = set.entries, *next = nullptr; entry != nullptr; entry = next) {
        next = entry->set_next;
        hear_again(set, *entry);
    }
}

void give_back(Set &set, Entry &entry)
{
    const Move move(set);
    detach(set, entry);
    leave_side(set, entry);
    if (!is_disabled(set, entry) && !return_to_kernel(set, entry))
        VMA_LOG(
            kError,
            "epoll set fd=%d: cannot give fd=%d back to the kernel's set: %s; the program will hear nothing more of it",
            set.epfd.load(), entry.fd, strerror(errno));
}

// A parked entry keeps its watcher and its place in the side set, and the set counts it as taken: a program that
// removes and adds the same socket for each message (redis-benchmark) makes no system call for it.
void park(Set &set, Entry &entry)
{
    LockGuard guard(set.ready_lock);
    unqueue(set, entry);
    ++entry.generation;
    entry.place.store(Place::kParked, std::memory_order_relaxed);
}

void unpark(Set &set, Entry &entry)
{
    {
        LockGuard guard(set.ready_lock);
        ++entry.generation;
        entry.told = 0;
        entry.place.store(Place::kTaken, std::memory_order_relaxed);
    }
    requeue(set, entry);
}

void discard(Set &set, Entry &entry)
{
    leave_side(set, entry);
    detach(set, entry);
    drop_entry(set, entry);
}

namespace {

void watch_ring(Set &set, unsigned ring)
{
    const int fd = sock::engine_wait_fd(ring);
    LockGuard guard(set.lock);
    if (control(set.side_fd, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, kEngineMarker) || errno == EEXIST)
        set.more_rings.fetch_or(sock::RingMask{1} << ring, std::memory_order_release);
}

} // namespace

void watch_engine(Set &set, sock::RingMask rings)
{
    sock::RingMask missing = rings & ~sock::kMainRing & ~set.more_rings.load(std::memory_order_acquire);
    for (; missing != 0; missing &= missing - 1)
        watch_ring(set, static_cast<unsigned>(__builtin_ctzll(missing)));
    const int fd = sock::engine_wait_fd();
    if (fd == set.engine_fd.load(std::memory_order_acquire) || (rings & sock::kMainRing) == 0)
        return;
    LockGuard guard(set.lock);
    if (fd >= 0 && (control(set.side_fd, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, kEngineMarker) || errno == EEXIST))
        set.engine_fd.store(fd, std::memory_order_release);
}

bool move_entries(sock::MuxHook &hook, bool take)
{
    full_fence(); // whoever adds an entry that is not found here will see what the source has become
    for (;;) {
        Set *set = nullptr;
        Entry *const entry = next_to_move(hook, take, set);
        if (entry == nullptr)
            return true;
        if (set == nullptr)
            continue; // another thread is dropping it
        bool moved = true;
        bool was_taken = false;
        {
            LockGuard guard(set->lock);
            if (entry->set.load(std::memory_order_relaxed) != set || &hook_of(*entry) != &hook ||
                !to_be_moved(*entry, take))
                continue;
            was_taken = is_taken(*set);
            if (entry->place.load(std::memory_order_relaxed) == Place::kParked)
                discard(*set, *entry);
            else if (take)
                moved = !stays_in_kernel(*set, *entry) && take_over(*set, *entry);
            else
                give_back(*set, *entry);
        }
        if (!tell_taken(*set, was_taken) || !moved)
            return false;
    }
}

bool tell_taken(Set &set, bool was_taken)
{
    bool taken = is_taken(set);
    if (taken == was_taken)
        return true;
    bool moved = true;
    do { // another thread may be changing it back
        taken = is_taken(set);
        moved = move_entries(set.hook, taken) && moved;
    } while (is_taken(set) != taken);
    if (taken) {
        sock::kick_sleepers(); // who polls the set's descriptor must look inside
    } else if (is_seen_by_others(set)) {
        LockGuard guard(set.lock);
        take_side_out(set);
    }
    return moved;
}

void end_storm(Set &set)
{
    if (!set.storm.load(std::memory_order_acquire))
        return;
    LockGuard guard(set.lock);
    if (!set.storm.load(std::memory_order_relaxed) ||
        (is_taken(set) && any_kernel_only_wait(set) && now_ns() < set.storm_end))
        return;
    libc::real.epoll_ctl(set.epfd, EPOLL_CTL_DEL, set.kick_fd, nullptr);
    set.storm.store(false, std::memory_order_release);
}

// Who sleeps in the set with nothing taken sleeps for the kernel's events alone, as if he had come now; it hangs there
// again before anything is taken.
void take_side_out(Set &set)
{
    if (!set.side_hangs || is_taken(set))
        return;
    if (set.storm.exchange(false, std::memory_order_relaxed))
        libc::real.epoll_ctl(set.epfd, EPOLL_CTL_DEL, set.kick_fd, nullptr);
    libc::real.epoll_ctl(set.epfd, EPOLL_CTL_DEL, set.side_fd, nullptr);
    set.side_hangs = false;
}

} // namespace vma::mux
