// SPDX-License-Identifier: BSD-2-Clause
// Which descriptors are epoll sets, from creation to the last close, through dup and fork, and the calls by which the
// socket layer tells of sockets that change sides or close.
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/stats/region.hpp"
#include "compat/src/wait/thread_record.hpp"

namespace vma::mux {

[[VMA_TABLE]] constinit EpollSets g_mux = {};

namespace {

void enter(int fd, Set &set) // table and set locked, or the set not known yet
{
    if (fd > highest_set())
        g_mux.end.store(fd + 1, std::memory_order_relaxed);
    ++set.descriptors;
    set_slot(fd).store(&set, std::memory_order_release);
}

int other_number(const Set &set)
{
    const int highest = highest_set();
    for (int fd = 0; fd <= highest; ++fd)
        if (set_slot(fd).load(std::memory_order_relaxed) == &set)
            return fd;
    return -1;
}

void drop_all(Set &set) // set.lock held
{
    while (set.entries != nullptr) {
        Entry &entry = *set.entries;
        const Place place = entry.place.load(std::memory_order_relaxed);
        if (place == Place::kTaken || place == Place::kParked)
            detach(set, entry);
        drop_entry(set, entry);
    }
}

bool concerned(const Entry &entry, int fd, bool last)
{
    return last || (entry.fd == fd && entry.place.load(std::memory_order_relaxed) != Place::kStuck);
}

Entry *next_concerned(sock::MuxHook &hook, int fd, bool last, Set *&set)
{
    LockGuard guard(hook.lock);
    for (auto *entry = static_cast<Entry *>(hook.entries); entry != nullptr; entry = entry->source_next)
        if (concerned(*entry, fd, last)) {
            set = entry->set.load(std::memory_order_acquire);
            return entry;
        }
    return nullptr;
}

// The kernel drops a registration with the last descriptor of its file, not with the number it was made under.
// True: it keeps this one, and with the number goes the means to change it.
bool close_entry(Set &set, Entry &entry, bool last)
{
    const Place place = entry.place.load(std::memory_order_relaxed);
    if (last || place == Place::kNowhere) {
        if (place == Place::kTaken || place == Place::kParked)
            detach(set, entry);
        drop_entry(set, entry);
        return false;
    }
    if (place == Place::kParked) {
        discard(set, entry);
        return false;
    }
    if (place == Place::kTaken)
        give_back(set, entry);
    if (entry.place.load(std::memory_order_relaxed) == Place::kTagged && !is_disabled(set, entry)) {
        epoll_event event = {entry.events, entry.data};
        libc::real.epoll_ctl(set.epfd, EPOLL_CTL_MOD, entry.fd, &event);
    }
    LockGuard guard(set.ready_lock);
    entry.place.store(Place::kStuck, std::memory_order_relaxed);
    return true;
}

// One descriptor of a source is about to be closed. True as in close_entry().
bool close_source(sock::MuxHook &hook, int fd, bool last)
{
    bool stuck = false;
    for (;;) {
        Set *set = nullptr;
        Entry *const entry = next_concerned(hook, fd, last, set);
        if (entry == nullptr)
            return stuck;
        if (set == nullptr)
            continue;
        bool was_taken = false;
        {
            LockGuard guard(set->lock);
            if (entry->set.load(std::memory_order_relaxed) != set || &hook_of(*entry) != &hook ||
                !concerned(*entry, fd, last))
                continue;
            was_taken = is_taken(*set);
            stuck = close_entry(*set, *entry, last) || stuck;
        }
        tell_taken(*set, was_taken);
    }
}

void reset(Set &set) // from the pool: nobody else knows it
{
    set.taken = 0;
    set.kernel_first = true;
    set.always_asks = false;
    set.tells_ends = false;
    set.tracked = 0;
    set.added = 0;
    set.filter = false;
    set.storm = false;
    set.descriptors = 0;
    set.side_hangs = false;
    set.read_again_ns = 0;
    set.engine_fd = -1;
    set.more_rings = 0;
    set.rings = 0;
    set.asleep = 0;
    set.kicked = false;
    set.dead = false;
    set.pooled = false;
}

void forget_user_side(Set &set) // in a forked child: the parent's descriptors, and its threads, are not ours
{
    set.lock.reset();
    set.ready_lock.reset();
    set.watch_lock.reset();
    set.hook.lock.reset();
    if (set.pooled.load(std::memory_order_relaxed))
        return;
    libc::close_private(set.kick_fd);
    libc::close_private(set.side_fd);
    set.kick_fd = -1;
    set.side_fd = -1;
    set.side_hangs = false;
    set.engine_fd = -1;
    set.more_rings = 0;
    set.rings = 0;
    set.inherited = set.taken.load(std::memory_order_relaxed) != 0;
    set.taken = 0;
    set.asleep = 0;
    set.users = 0;
    set.kicked = false;
    set.storm = false;
    set.watchers = nullptr;
    while (set.head != nullptr)
        unqueue(set, *set.head);
}

} // namespace

// ---- descriptors of sets --------------------------------------------------------------------------------------------

int highest_set()
{
    return g_mux.end.load(std::memory_order_relaxed) - 1;
}

Set *adopt_set(int epfd)
{
    if (static_cast<unsigned>(epfd) >= static_cast<unsigned>(sock::kMaxTracked))
        return nullptr;
    LockGuard guard(g_mux.lock);
    if (Set *const known = set_of(epfd); known != nullptr)
        return known; // another thread was first
    Set *const set = g_mux.pool.take();
    if (set == nullptr)
        return nullptr;
    reset(*set);
    set->epfd = epfd;
    enter(epfd, *set);
    return set;
}

namespace {

constexpr std::uint64_t kPoller = std::uint64_t{1} << 63; // no set has such an address

// The first thread that polls has the main ring, too.
std::uint64_t poller_owner(std::uint32_t poller)
{
    std::uint32_t owner = 0;
    if (poller == 0 || g_mux.main_poller.compare_exchange_strong(owner, poller, std::memory_order_relaxed) ||
        owner == poller)
        return 0;
    return kPoller | poller;
}

} // namespace

void note_poller(sock::Socket &s, const ThreadRecord &thread)
{
    std::atomic<std::uint32_t> &poller = sock::mux_hook(s).poller;
    const auto number = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(&thread) / alignof(ThreadRecord));
    if (poller.load(std::memory_order_relaxed) != number)
        poller.store(number, std::memory_order_relaxed);
}

std::uint64_t ring_owner(sock::Socket &s)
{
    sock::MuxHook &hook = sock::mux_hook(s);
    LockGuard guard(hook.lock);
    const auto *const entry = static_cast<Entry *>(hook.entries);
    Set *const set = entry != nullptr ? entry->set.load(std::memory_order_acquire) : nullptr;
    if (set == nullptr)
        return poller_owner(hook.poller.load(std::memory_order_relaxed));
    Set *owner = nullptr;
    if (g_mux.main_owner.compare_exchange_strong(owner, set, std::memory_order_relaxed) || owner == set)
        return 0;
    return reinterpret_cast<std::uintptr_t>(set); // their memory is never anything else
}

[[gnu::cold]] stats::Mux &make_record(Set &set)
{
    stats::Mux &made = stats::claim_set(set.epfd.load(std::memory_order_relaxed));
    stats::Mux *before = nullptr;
    if (set.record.compare_exchange_strong(before, &made, std::memory_order_acq_rel))
        return made;
    stats::give_back(made);
    return *before;
}

void recycle_if_unused(Set &set)
{
    if (!set.dead.load(std::memory_order_seq_cst))
        return;
    const libc::Stretch stretch;
    synchronise_records();
    if (any_wait(set) || set.users.load(std::memory_order_seq_cst) != 0 ||
        set.pooled.exchange(true, std::memory_order_acq_rel))
        return; // who is in it will come back here
    int kick = -1;
    {
        LockGuard guard(set.ready_lock);
        kick = set.kick_fd;
        set.kick_fd = -1;
    }
    libc::close_private(kick);
    libc::close_private(set.side_fd.exchange(-1));
    Set *owner = &set;
    g_mux.main_owner.compare_exchange_strong(owner, nullptr, std::memory_order_relaxed);
    if (stats::Mux *const record = set.record.exchange(nullptr))
        stats::give_back(*record);
    g_mux.pool.give(&set);
}

int live_number(const Set &set, int epfd)
{
    return set_of(epfd) == &set ? epfd : set.epfd.load(std::memory_order_acquire);
}

int epoll_created(int epfd)
{
    if (set_of(epfd) != nullptr)
        epoll_closed(epfd); // the number was closed behind our back
    adopt_set(epfd);
    return epfd;
}

bool is_epoll(int fd)
{
    return set_of(fd) != nullptr;
}

void epoll_dup(int old_fd, int new_fd)
{
    if (old_fd == new_fd || static_cast<unsigned>(new_fd) >= static_cast<unsigned>(sock::kMaxTracked))
        return;
    if (set_of(new_fd) != nullptr)
        epoll_closed(new_fd);
    LockGuard guard(g_mux.lock);
    Set *const set = set_of(old_fd);
    if (set == nullptr)
        return;
    LockGuard set_guard(set->lock);
    enter(new_fd, *set);
}

void epoll_closed(int fd)
{
    Set *set = nullptr;
    bool last = false;
    {
        LockGuard guard(g_mux.lock);
        set = set_of(fd);
        if (set == nullptr)
            return;
        LockGuard set_guard(set->lock);
        set_slot(fd).store(nullptr, std::memory_order_release);
        last = --set->descriptors == 0;
        if (set->epfd.load(std::memory_order_relaxed) == fd)
            set->epfd.store(last ? -1 : other_number(*set), std::memory_order_release);
    }
    close_source(set->hook, fd, last);
    if (!last)
        return;
    {
        LockGuard guard(set->lock);
        set->filter.store(true, std::memory_order_relaxed);
        set->dead.store(true, std::memory_order_seq_cst);
        drop_all(*set);
        leave_shared(*set);
    }
    recycle_if_unused(*set);
}

// ---- called by the socket layer -------------------------------------------------------------------------------------

bool became_offloaded(sock::Socket &s)
{
    sock::MuxHook &hook = sock::mux_hook(s);
    const bool moved = move_entries(hook, true);
    hook.shared.store(!moved && stays_in_kernel(hook), std::memory_order_relaxed);
    sock::kick_sleepers();
    return moved;
}

void became_kernel_only(sock::Socket &s)
{
    move_entries(sock::mux_hook(s), false);
}

bool descriptor_closed(sock::Socket &s, int fd, bool last)
{
    return close_source(sock::mux_hook(s), fd, last);
}

bool fork_prepare()
{
    bool any = false;
    g_mux.pool.for_each(discard_parked);
    g_mux.lock.lock();
    g_mux.pool.for_each([&any](Set &set) {
        set.lock.lock();
        any |= share_before_fork(set);
    });
    g_mux.pool.lock().lock();
    g_mux.entries.lock().lock();
    return any;
}

void fork_parent()
{
    g_mux.entries.lock().unlock();
    g_mux.pool.lock().unlock();
    g_mux.pool.for_each([](Set &set) { set.lock.unlock(); });
    g_mux.lock.unlock();
}

void fork_child()
{
    g_mux.entries.lock().reset();
    g_mux.pool.lock().reset();
    g_mux.lock.reset();
    g_mux.pool.for_each(forget_user_side);
    forget_other_threads();
    g_mux.pool.for_each([](Set &set) {
        if (!set.pooled.load(std::memory_order_relaxed))
            take_over_again(set);
    });
}

} // namespace vma::mux
