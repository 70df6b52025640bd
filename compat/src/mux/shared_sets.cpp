// SPDX-License-Identifier: BSD-2-Clause
// An epoll set that several processes have since a fork(), or that one of them has passed on: what one registers the
// others are told of, so that all is with the kernel's set, as it was asked, until one process has it alone again. What
// the others have changed by then is read from the kernel, which lists a set's registrations (proc(5), fdinfo).
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>

#include "compat/src/base/sandboxed.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/sharing/family.hpp"
#include "compat/src/wait/thread_record.hpp"

namespace vma::mux {

namespace {

namespace family = sock::family;

constexpr std::uint32_t kForGood = UINT32_MAX;     // never alone again
constexpr std::uint32_t kForExec = UINT32_MAX - 1; // unless no other program comes

bool has_cell(std::uint32_t shared)
{
    return shared != 0 && shared < kForExec;
}

// A line of the list.
struct Registered {
    int fd = -1; // a number of the process that made it
    std::uint32_t events = 0;
    std::uint64_t data = 0;
    ino_t inode = 0;

    bool parse(const char *line)
    {
        std::uint64_t number = 0;
        const int found = ::sscanf(line, "tfd: %d events: %" SCNx32 " data: %" SCNx64 " pos:%*d ino:%" SCNx64, &fd,
                                   &events, &data, &number);
        inode = number;
        return found == 4;
    }
};

// Calls visit(Registered) for each. False: it can't be read.
template <typename Visit> bool each_registered(int epfd, Visit visit)
{
    char text[2048];
    ::snprintf(text, sizeof text, "/proc/thread-self/fdinfo/%d", epfd);
    const int file = libc::real.open(text, O_RDONLY | O_CLOEXEC);
    std::size_t have = 0;
    ssize_t got = -1;
    while (file >= 0 && (got = libc::real.read(file, text + have, sizeof text - 1 - have)) > 0) {
        have += static_cast<std::size_t>(got);
        text[have] = '\0';
        char *line = text;
        for (char *end = nullptr; (end = ::strchr(line, '\n')) != nullptr; line = end + 1) {
            *end = '\0';
            if (Registered registered; registered.parse(line))
                visit(registered);
        }
        have -= static_cast<std::size_t>(line - text);
        ::memmove(text, line, have);
    }
    if (file >= 0)
        libc::real.close(file);
    return got == 0;
}

bool is_file_of(int fd, ino_t inode)
{
    struct stat st = {};
    return ::fstat(fd, &st) == 0 && st.st_ino == inode;
}

bool is_in_kernel(const Entry &entry)
{
    const Place place = entry.place.load(std::memory_order_relaxed);
    return place == Place::kKernel || place == Place::kTagged;
}

void take_note(Set &set, Entry &entry, const Registered &registered)
{
    const LockGuard guard(set.ready_lock);
    const Place place = entry.place.load(std::memory_order_relaxed);
    entry.seen = true;
    if (place == Place::kTaken || place == Place::kParked)
        return; // bytes that are unread are ours to tell
    entry.place.store(Place::kKernel, std::memory_order_relaxed);
    if (place_of_tag(registered.data) == reinterpret_cast<std::uintptr_t>(&entry))
        return; // has fired before it was shared
    entry.events = registered.events;
    entry.data.u64 = registered.data;
    entry.disabled = false;
    ++entry.generation;
}

// False: it is not of a socket that this process has under that number. One set can't be told from another: of those
// inside it is known what this process has registered.
bool note_registered(Set &set, const Registered &registered)
{
    sock::Socket *const s = sock::lookup(registered.fd);
    Set *const inner = s == nullptr ? set_of(registered.fd) : nullptr;
    void *const source = s != nullptr ? static_cast<void *>(s) : inner;
    if (source == nullptr || (s != nullptr && !is_file_of(registered.fd, registered.inode)))
        return false;
    Entry *entry = find_entry(set, source, s == nullptr, registered.fd);
    if (entry == nullptr && s != nullptr)
        entry = new_entry(set, source, false, registered.fd);
    if (entry == nullptr)
        return false;
    take_note(set, *entry, registered);
    full_fence(); // as in epoll_control.cpp: another thread may have closed it
    if (s != nullptr && sock::lookup(registered.fd) != s)
        drop_entry(set, *entry);
    return true;
}

void drop_unseen(Set &set)
{
    for (Entry *entry = set.entries, *next = nullptr; entry != nullptr; entry = next) {
        next = entry->set_next;
        if (is_in_kernel(*entry) && !entry->seen)
            drop_entry(set, *entry);
    }
}

// What others have changed since it was read last. False: that can't be found out. set.lock held
bool read_changes(Set &set)
{
    const std::uint32_t changes = family::changes(set.shared.load(std::memory_order_relaxed));
    if (changes == set.changes)
        return true;
    for (Entry *entry = set.entries; entry != nullptr; entry = entry->set_next)
        entry->seen = false;
    std::uint32_t others = 0;
    const bool whole = each_registered(set.epfd, [&set, &others](const Registered &registered) {
        if (registered.data != side_marker(set) && !note_registered(set, registered))
            ++others;
    });
    if (!whole)
        return false;
    drop_unseen(set);
    if (const std::uint32_t before = set.added.load(std::memory_order_relaxed); before < others)
        set.added.fetch_add(others - before, std::memory_order_relaxed);
    set.changes = changes;
    return true;
}

// One that has fired keeps the tag, which nobody sees before EPOLL_CTL_MOD has put data in its place. What another
// thread has heard by a tag, and not told yet, it throws away: it is heard once more.
void untag(Set &set, Entry &entry)
{
    if (entry.place.load(std::memory_order_relaxed) != Place::kTagged)
        return;
    bool armed = false;
    {
        const LockGuard guard(set.ready_lock); // who reports it meanwhile finds it there, or has disabled it
        armed = !entry.disabled;
        entry.place.store(Place::kKernel, std::memory_order_relaxed);
    }
    epoll_event event = {entry.events, entry.data};
    if (armed)
        libc::real.epoll_ctl(set.epfd, EPOLL_CTL_MOD, entry.fd, &event);
}

// The kernel's set as the program has made it. What has bytes of ours stays. set.lock held
void show_as_asked(Set &set)
{
    for (Entry *entry = set.entries; entry != nullptr; entry = entry->set_next)
        untag(set, *entry);
    take_side_out(set);
}

// Each once: what has bytes that are unread stays with us.
bool next_to_give_back(Set &set, void *&source, bool &nested)
{
    const LockGuard guard(set.lock);
    for (Entry *entry = set.entries; entry != nullptr; entry = entry->set_next) {
        const bool shows_ours = entry->place.load(std::memory_order_relaxed) == Place::kTaken ||
                                (entry->nested && entry->inner()->side_hangs);
        if (entry->given_back || !shows_ours)
            continue;
        entry->given_back = true;
        source = entry->source;
        nested = entry->nested;
        return true;
    }
    return false;
}

// A long list that others change again and again is read in a hundredth of the time. False: there is more to know.
bool read_at_times(Set &set, bool alone)
{
    constexpr std::int64_t kRests = 100;
    if (family::changes(set.shared.load(std::memory_order_relaxed)) == set.changes)
        return true;
    const std::int64_t begin = now_ns();
    if (!alone && begin < set.read_again_ns)
        return false;
    const bool known = read_changes(set);
    const std::int64_t end = now_ns();
    set.read_again_ns = end + kRests * (end - begin);
    return known;
}

// One of the sets of the process. False: others have changed it, and how is not known yet. Offload lock and g_mux.lock
// held.
bool look_who_has(Set &set)
{
    const std::uint32_t cell = set.shared.load(std::memory_order_relaxed);
    if (!has_cell(cell))
        return true;
    const LockGuard guard(set.lock);
    const bool alone = family::is_alone(cell); // first: who has left it changes nothing any more
    if (!read_at_times(set, alone))
        return false;
    if (alone) {
        VMA_LOG(kDebug, "epoll set fd=%d: no other process has it any more", set.epfd.load(std::memory_order_relaxed));
        leave_shared(set);
    }
    return true;
}

// What was armed while the set was shared has no tag, and nobody would see it fire: the program's next EPOLL_CTL_MOD
// gives it one.
bool is_untagged_one_shot(Set &set, const Entry &entry)
{
    const LockGuard guard(set.ready_lock);
    return entry.place.load(std::memory_order_relaxed) == Place::kKernel && (entry.events & EPOLLONESHOT) != 0;
}

bool any_stays(sock::MuxHook &hook) // its lock held
{
    for (auto *entry = static_cast<Entry *>(hook.entries); entry != nullptr; entry = entry->source_next) {
        Set *const set = entry->set.load(std::memory_order_acquire);
        if (set != nullptr && stays_in_kernel(*set, *entry))
            return true;
    }
    return false;
}

// A set that is put into itself, or around one that holds it, is on our lists for the moment in which the kernel
// refuses that: nobody waits for the lock of a set around, and who doesn't get it asks again later.
bool set_around_stays(sock::MuxHook &hook)
{
    if (!hook.lock.try_lock())
        return true;
    const bool stays = any_stays(hook);
    hook.lock.unlock();
    return stays;
}

} // namespace

bool stays_in_kernel(Set &set, const Entry &entry)
{
    return set.shared.load(std::memory_order_seq_cst) != 0 || is_untagged_one_shot(set, entry) ||
           set_around_stays(set.hook);
}

bool stays_in_kernel(sock::MuxHook &hook)
{
    const LockGuard guard(hook.lock);
    return any_stays(hook);
}

bool is_seen_by_others(Set &set)
{
    return g_mux.shared.load(std::memory_order_seq_cst) != 0 &&
           (set.shared.load(std::memory_order_seq_cst) != 0 || set_around_stays(set.hook));
}

void discard_parked(Set &set)
{
    if (!is_taken(set))
        return;
    {
        const LockGuard guard(set.lock);
        for (Entry *entry = set.entries, *next = nullptr; entry != nullptr; entry = next) {
            next = entry->set_next;
            if (entry->place.load(std::memory_order_relaxed) == Place::kParked)
                discard(set, *entry);
        }
    }
    tell_taken(set, true);
}

void note_change(Set &set)
{
    const std::uint32_t cell = set.shared.load(std::memory_order_relaxed);
    if (!has_cell(cell))
        return;
    const bool up_to_date = family::changes(cell) == set.changes;
    family::note_change(cell);
    if (up_to_date)
        ++set.changes;
}

void leave_shared(Set &set)
{
    const std::uint32_t cell = set.shared.exchange(0, std::memory_order_seq_cst);
    if (cell == 0)
        return;
    g_mux.shared.fetch_sub(1, std::memory_order_relaxed);
    if (has_cell(cell))
        family::leave(cell);
}

namespace {

void share_as(Set &set, std::uint32_t shared)
{
    if (set.shared.exchange(shared, std::memory_order_seq_cst) == 0)
        g_mux.shared.fetch_add(1, std::memory_order_relaxed);
}

} // namespace

bool share_before_fork(Set &set)
{
    if (set.pooled.load(std::memory_order_relaxed) || set.dead.load(std::memory_order_relaxed) || sock::sandboxed())
        return false;
    if (libc::is_private(set.epfd.load(std::memory_order_relaxed))) // of SocketXtreme: no program has it
        return false;
    const std::uint32_t before = set.shared.load(std::memory_order_relaxed);
    if (before == 0 || before == kForExec) {
        const family::Cell cell = family::take();
        set.changes = cell != family::kNoCell ? family::changes(cell) : 0;
        share_as(set, cell != family::kNoCell ? cell : kForGood);
    }
    show_as_asked(set);
    return true;
}

bool may_follow(sock::Socket &s)
{
    bool known = true;
    if (g_mux.shared.load(std::memory_order_relaxed) != 0) {
        const libc::KeepErrno keep;
        const LockGuard guard(g_mux.lock);
        g_mux.pool.for_each([&known](Set &set) { known &= look_who_has(set); });
    }
    sock::MuxHook &hook = sock::mux_hook(s);
    const bool shared = !known || stays_in_kernel(hook);
    hook.shared.store(shared, std::memory_order_relaxed);
    return !shared;
}

void give_to_kernel(void *source, bool nested)
{
    if (nested)
        give_back_all(*static_cast<Set *>(source));
    else
        sock::give_to_kernel(*static_cast<sock::Socket *>(source), sock::kSetIsShared);
}

void give_back_all(Set &set)
{
    {
        const LockGuard guard(set.lock);
        for (Entry *entry = set.entries; entry != nullptr; entry = entry->set_next)
            entry->given_back = false;
    }
    discard_parked(set);
    void *source = nullptr;
    bool nested = false;
    while (next_to_give_back(set, source, nested))
        give_to_kernel(source, nested);
    const LockGuard guard(set.lock);
    take_side_out(set);
}

namespace {

// Others of the family who have it go on counting its changes. set.lock held
void share_with_strangers(Set &set, std::uint32_t until)
{
    const std::uint32_t before = set.shared.load(std::memory_order_relaxed);
    if (has_cell(before) && until == kForGood)
        family::keep_for_good(before);
    if (before == 0 || before == kForExec)
        share_as(set, until);
}

void show_to_strangers(Set &set, std::uint32_t until)
{
    {
        const LockGuard guard(set.lock);
        share_with_strangers(set, until);
    }
    give_back_all(set);
    const LockGuard guard(set.lock);
    show_as_asked(set);
}

} // namespace

void set_passed(int fd)
{
    if (Set *const set = set_of(fd); set != nullptr)
        show_to_strangers(*set, kForGood);
}

// As after a fork: the program that comes has the kernel's part of it alone.
void before_exec()
{
    g_mux.pool.for_each([](Set &set) {
        int fd = -1;
        bool several = false;
        {
            const LockGuard guard(set.lock);
            const bool is_alone = !set.pooled.load(std::memory_order_relaxed) &&
                                  !set.dead.load(std::memory_order_relaxed) &&
                                  set.shared.load(std::memory_order_relaxed) == 0; // else the kernel has it all
            fd = is_alone ? set.epfd.load(std::memory_order_relaxed) : -1;
            several = set.descriptors > 1;
        }
        if (fd < 0 || libc::is_private(fd))
            return;
        const int flags = libc::real.fcntl(fd, F_GETFD);
        if (several || (flags >= 0 && (flags & FD_CLOEXEC) == 0)) // of others the flag may differ
            show_to_strangers(set, kForExec);
    });
}

void exec_failed()
{
    g_mux.pool.for_each([](Set &set) {
        const LockGuard guard(set.lock);
        if (set.shared.load(std::memory_order_relaxed) == kForExec)
            leave_shared(set);
    });
}

} // namespace vma::mux
