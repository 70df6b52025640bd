// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/table/read_urings.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>

#include "compat/src/base/process_words.hpp"
#include "compat/src/libc/sections.hpp"

#ifndef IORING_SETUP_NO_SQARRAY
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#endif

namespace vma::sock {

[[VMA_TABLE]] constinit ReadUrings g_urings;

namespace {

constexpr std::uint32_t kReadable = IORING_SETUP_IOPOLL | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP |
                                    IORING_SETUP_ATTACH_WQ | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN |
                                    IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SQE128 | IORING_SETUP_CQE32 |
                                    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_NO_SQARRAY;

void *map(std::size_t size, int fd, std::int64_t offset)
{
    const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, offset);
    return memory != MAP_FAILED ? memory : nullptr;
}

void unmap(void *&memory, std::size_t size)
{
    if (memory != nullptr)
        ::munmap(memory, size);
    memory = nullptr;
}

void unmap(ReadUring &uring)
{
    unmap(uring.words, uring.words_size);
    unmap(uring.entries, uring.entries_size);
    unmap(uring.changes, uring.changes_size);
}

bool map(ReadUring &uring, int fd, const io_uring_params &made)
{
    const bool has_array = (made.flags & IORING_SETUP_NO_SQARRAY) == 0;
    UringQueue::Layout layout = {};
    layout.head = made.sq_off.head;
    layout.tail = made.sq_off.tail;
    layout.array = has_array ? made.sq_off.array : 0;
    layout.count = made.sq_entries;
    layout.stride = static_cast<std::uint32_t>(sizeof(io_uring_sqe))
                    << ((made.flags & IORING_SETUP_SQE128) != 0 ? 1 : 0);
    const std::size_t counters = std::max<std::size_t>(layout.head, layout.tail) + sizeof(std::uint32_t);
    layout.words_size = has_array ? layout.array + std::size_t{layout.count} * sizeof(std::uint32_t) : counters;
    if (!UringQueue::is_sane(layout) || has_array != (layout.array != 0))
        return false;
    uring.words_size = layout.words_size;
    uring.entries_size = std::size_t{layout.count} * layout.stride;
    uring.changes_size = std::size_t{layout.count} * sizeof(UringQueue::Change);
    uring.words = map(uring.words_size, fd, IORING_OFF_SQ_RING);
    uring.entries = map(uring.entries_size, fd, IORING_OFF_SQES);
    uring.changes = map(uring.changes_size, -1, 0);
    if (uring.words == nullptr || uring.entries == nullptr || uring.changes == nullptr) {
        unmap(uring);
        return false;
    }
    layout.words = static_cast<char *>(uring.words);
    layout.entries = static_cast<char *>(uring.entries);
    uring.queue.begin(layout, static_cast<UringQueue::Change *>(uring.changes));
    return true;
}

const char *why_unreadable(std::uint32_t flags)
{
    if ((flags & IORING_SETUP_SQPOLL) != 0)
        return "io_uring_setup (IORING_SETUP_SQPOLL)";
    return (flags & ~kReadable) != 0 ? "io_uring_setup (flags that the library does not know)" : nullptr;
}

ReadUring *free_place()
{
    for (ReadUring &uring : g_urings.all)
        if (uring.above.load(std::memory_order_relaxed) == 0)
            return &uring;
    return nullptr;
}

// The lock is held in all three.
bool is_proven(const void *site)
{
    return std::find(std::begin(g_urings.sites), std::end(g_urings.sites), site) != std::end(g_urings.sites);
}

void set_proven(ReadUring &uring)
{
    if (uring.above.load(std::memory_order_relaxed) != 0 && !uring.proven.exchange(true))
        g_process.uring.unproven.fetch_sub(1, std::memory_order_seq_cst);
}

void keep_site(const void *site)
{
    auto *const free = std::find(std::begin(g_urings.sites), std::end(g_urings.sites), nullptr);
    if (free != std::end(g_urings.sites))
        *free = site;
}

} // namespace

const char *read_uring(int fd, const io_uring_params &made, const void *site)
{
    if (const char *const why = why_unreadable(made.flags))
        return why;
    struct stat file = {};
    const LockGuard guard(g_urings.lock);
    ReadUring *const uring = free_place();
    if (uring == nullptr || ::fstat(fd, &file) != 0)
        return "io_uring_setup (more than can be read)";
    const LockGuard own(uring->lock);
    if (!map(*uring, fd, made))
        return "io_uring_setup (its memory can't be read)";
    uring->only_polled = (made.flags & IORING_SETUP_IOPOLL) != 0;
    uring->device = file.st_dev;
    uring->inode = file.st_ino;
    uring->site = site;
    uring->inherited = false;
    uring->drains = false;
    uring->proven = site == nullptr || is_proven(site);
    uring->liburing_head = nullptr;
    if (!uring->proven)
        g_process.uring.unproven.fetch_add(1, std::memory_order_seq_cst);
    uring->generation.fetch_add(1, std::memory_order_relaxed);
    uring->above.store(fd + 1, std::memory_order_release);
    const int place = static_cast<int>(uring - g_urings.all);
    g_urings.end = std::max(g_urings.end.load(std::memory_order_relaxed), place + 1);
    return nullptr;
}

void prove_uring(const UringReference &uring)
{
    const LockGuard guard(g_urings.lock);
    const void *const site = uring->site;
    if (!is_proven(site))
        keep_site(site);
    for (ReadUring &other : g_urings.all)
        if (other.site == site && !other.inherited.load(std::memory_order_relaxed))
            set_proven(other);
}

UringReference find_uring(int fd)
{
    const int end = fd >= 0 ? g_urings.end.load(std::memory_order_acquire) : 0;
    for (int i = 0; i < end; ++i) {
        ReadUring &uring = g_urings.all[i];
        const std::uint32_t generation = uring.generation.load(std::memory_order_acquire);
        if (uring.above.load(std::memory_order_acquire) == fd + 1)
            return {&uring, generation};
    }
    return {};
}

void name_liburing(int fd, const void *head)
{
    if (const UringReference uring = find_uring(fd))
        uring->liburing_head.store(head, std::memory_order_release);
}

UringReference find_liburing(const void *head, int fd)
{
    const int end = head != nullptr ? g_urings.end.load(std::memory_order_acquire) : 0;
    for (int i = 0; i < end; ++i) {
        ReadUring &uring = g_urings.all[i];
        const std::uint32_t generation = uring.generation.load(std::memory_order_acquire);
        if (uring.liburing_head.load(std::memory_order_acquire) == head &&
            uring.above.load(std::memory_order_relaxed) == fd + 1)
            return {&uring, generation};
    }
    return {};
}

void forget_uring(int fd)
{
    const UringReference uring = find_uring(fd);
    if (!uring)
        return;
    const LockGuard guard(g_urings.lock);
    const LockGuard own(uring->lock);
    if (uring->above.load(std::memory_order_relaxed) != fd + 1)
        return;
    if (!uring->inherited.load(std::memory_order_relaxed))
        set_proven(*uring);
    unmap(*uring);
    uring->liburing_head.store(nullptr, std::memory_order_relaxed);
    uring->generation.fetch_add(1, std::memory_order_relaxed);
    uring->above.store(0, std::memory_order_release);
}

void forget_urings()
{
    const int end = g_urings.end.load(std::memory_order_acquire);
    for (int i = 0; i < end; ++i)
        if (const int above = g_urings.all[i].above.load(std::memory_order_acquire); above != 0)
            forget_uring(above - 1);
}

bool is_read_uring(int fd)
{
    const UringReference uring = find_uring(fd);
    struct stat file = {};
    return uring && !uring->inherited.load(std::memory_order_relaxed) && ::fstat(fd, &file) == 0 &&
           file.st_dev == uring->device && file.st_ino == uring->inode;
}

// The parent goes on to hand over entries, which mean its own descriptors.
void urings_after_fork_in_child()
{
    g_urings.lock.reset();
    g_process.uring.unproven.store(0, std::memory_order_relaxed);
    g_process.uring.ended.store(g_process.uring.begun.load(std::memory_order_relaxed), std::memory_order_relaxed);
    for (int i = 0; i < g_urings.end.load(std::memory_order_relaxed); ++i) {
        g_urings.all[i].turn.reset();
        g_urings.all[i].lock.reset();
        g_urings.all[i].inherited = true;
    }
}

void name_for_later(int fd)
{
    g_urings.named.add(fd);
    g_urings.any_named.store(true, std::memory_order_seq_cst);
}

} // namespace vma::sock
