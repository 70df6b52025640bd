// SPDX-License-Identifier: BSD-2-Clause
// Records are linked once and reused by later threads, never freed. Calls that are left by siglongjmp release their
// frames (libc/when_left.hpp). Where one did not, it is known by its stack address: a frame deeper on the stack than
// the call that starts now belongs to no one any more.
#include "compat/src/wait/thread_record.hpp"

#include <linux/membarrier.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <iterator>
#include <new>
#include <utility>

#include "compat/src/engine/sandbox.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/libc/thread_key.hpp"
#include "compat/src/stats/layout.hpp"

namespace vma::mux {

thread_local constinit WaitThread t_wait [[gnu::tls_model("initial-exec")]];
constinit Waits g_waits;

namespace {

void leave_thread(void *memory)
{
    auto *const record = static_cast<ThreadRecord *>(memory);
    for (Frame *frame = record->frames; frame != nullptr; frame = frame->deeper)
        frame->release();
    record->kernel_only_wait.store(nullptr, std::memory_order_release);
    record->aware_wait.store(nullptr, std::memory_order_release);
    t_wait.record = nullptr;
    record->used.store(false, std::memory_order_release);
}

// Before the first record is used. Once is enough, and more do no harm.
void use_membarrier()
{
    if (g_waits.membarrier.load(std::memory_order_relaxed) || sock::sandboxed())
        return full_fence();
    g_waits.membarrier.store(::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0,
                             std::memory_order_relaxed);
    full_fence(); // who has just seen that it is not used has published what this thread is to see
}

ThreadRecord *reuse_record()
{
    for (ThreadRecord *record = g_waits.first.load(std::memory_order_acquire); record != nullptr;
         record = record->next) {
        bool used = false;
        if (record->used.compare_exchange_strong(used, true, std::memory_order_acq_rel))
            return record;
    }
    return nullptr;
}

// Not malloc(): a signal handler that interrupted it may be the first in its thread to wait for a socket.
void *map(std::size_t size)
{
    void *const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : nullptr;
}

template <typename T> T *make()
{
    void *const memory = map(sizeof(T));
    return memory != nullptr ? new (memory) T : nullptr;
}

// For threads that wait for their first time under a filter of system calls, where mmap() may end them.
ThreadRecord *reserved_record()
{
    const unsigned index = g_waits.taken.fetch_add(1, std::memory_order_relaxed);
    return index < std::size(g_waits.reserved) ? &g_waits.reserved[index] : nullptr;
}

} // namespace

template <typename T> Scratch<T>::~Scratch()
{
    unmap();
}

template <typename T> void Scratch<T>::unmap()
{
    T *const items = items_;
    const std::size_t room = room_;
    items_ = nullptr; // first: a handler may jump out of here
    room_ = 0;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (items != nullptr)
        ::munmap(items, room * sizeof(T));
}

template <typename T> T *Scratch<T>::at_least(std::size_t count)
{
    if (count <= room_)
        return items_;
    constexpr std::size_t kFirst = 64;
    const std::size_t room = count < kFirst ? kFirst : count + count / 2;
    unmap();
    items_ = static_cast<T *>(map(room * sizeof(T)));
    room_ = items_ != nullptr ? room : 0;
    return items_;
}

template class Scratch<pollfd>;
template class Scratch<Looked>;

void notify_frame(sock::Watcher *watcher, std::uint32_t)
{
    static_assert(offsetof(Looked, watcher) == 0);
    Frame &frame = *reinterpret_cast<Looked *>(watcher)->frame;
    if (!frame.notified.exchange(true, std::memory_order_acq_rel))
        frame.sleeper->wake();
}

void Frame::begin_sleep(std::uint32_t place)
{
    const libc::Stretch stretch;
    if (place == sock::kNoPlace)
        sock::Sleeper::make_descriptor();
    sleeper.emplace(place);
    notified.store(false, std::memory_order_relaxed);
}

bool Frame::arm(sock::RingMask rings)
{
    const libc::Stretch stretch;
    const bool idle = sock::engine_arm(rings);
    if (idle)
        armed = rings;
    return idle;
}

void Frame::woken()
{
    if (armed == 0)
        return;
    const libc::Stretch stretch;
    sock::engine_woken(armed);
    armed = 0;
}

bool Frame::hear_edges(int fd, std::uint32_t &there)
{
    const libc::Stretch stretch;
    const int set = sock::sandboxed() ? -1 : libc::real.epoll_create1(EPOLL_CLOEXEC);
    if (set < 0)
        return false;
    edges = libc::make_private(set);
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLET;
    if (libc::real.epoll_ctl(edges, EPOLL_CTL_ADD, fd, &event) != 0) {
        libc::close_private(std::exchange(edges, -1));
        return false;
    }
    const bool any = libc::uncancelled::epoll_now(edges, &event, 1) == 1;
    there = any ? event.events : 0;
    return true;
}

bool Frame::watch_one(sock::Socket &socket, std::uint32_t place)
{
    Looked *const item = looked.at_least(1);
    if (item == nullptr)
        return false;
    begin_sleep(place);
    *item = {};
    item->watcher.notify = notify_frame;
    item->watcher.keeps_time = true;
    item->frame = this;
    item->socket = &socket;
    looked_count = 1;
    sock::watch(socket, item->watcher);
    return true;
}

void Frame::end_sleep()
{
    Looked *const items = looked.at_least(0);
    for (std::size_t i = 0; i < looked_count; ++i) {
        if (items[i].set != nullptr)
            unwatch_set(*items[i].set, items[i].watcher);
        else
            sock::unwatch(items[i].watcher);
    }
    if (!sleeper)
        return;
    const libc::Stretch stretch;
    sleeper.reset();
}

void Frame::release()
{
    if (stack == 0)
        return;
    woken();
    end_sleep();
    if (edges >= 0)
        libc::close_private(std::exchange(edges, -1));
    looked_count = 0;
    stack = 0;
}

ThreadRecord *make_thread_record()
{
    ThreadRecord *record = reuse_record();
    if (record == nullptr) {
        use_membarrier();
        record = sock::sandboxed() ? reserved_record() : make<ThreadRecord>();
        if (record == nullptr)
            return nullptr;
        record->used.store(true, std::memory_order_relaxed);
        record->group = g_waits.made.fetch_add(1, std::memory_order_relaxed) % stats::kThreadGroups;
        record->next = g_waits.first.load(std::memory_order_relaxed);
        while (!g_waits.first.compare_exchange_weak(record->next, record, std::memory_order_acq_rel)) {
        }
    }
    g_waits.record_key.set(record, leave_thread);
    t_wait.record = record;
    return record;
}

Frame *acquire_frame()
{
    ThreadRecord *const record = thread_record();
    if (record == nullptr)
        return nullptr;
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    Frame **link = &record->frames;
    Frame *free_frame = nullptr;
    bool left = false;
    for (; *link != nullptr; link = &(*link)->deeper) {
        Frame *const frame = *link;
        if (frame->stack != 0 && frame->stack <= here && !libc::on_alternate_stack()) {
            left = true;
            frame->release(); // a jump that libc knew nothing of left its call
        }
        if (frame->stack == 0 && free_frame == nullptr)
            free_frame = frame;
    }
    if (left)
        libc::set_signal_wake_fd(-1); // of several the last one to go is not the outermost
    if (free_frame == nullptr) {
        free_frame = make<Frame>();
        if (free_frame == nullptr)
            return nullptr;
        *link = free_frame;
    }
    free_frame->stack = here;
    return free_frame;
}

void synchronise_records()
{
    full_fence();
    if (g_waits.membarrier.load(std::memory_order_relaxed))
        ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

// The call after the change is for threads that have read it before.
void synchronise_without_membarrier()
{
    if (g_waits.membarrier.exchange(false, std::memory_order_seq_cst))
        ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

bool any_kernel_only_wait(const Set &set)
{
    for (ThreadRecord *record = g_waits.first.load(std::memory_order_acquire); record != nullptr; record = record->next)
        if (record != t_wait.record && record->kernel_only_wait.load(std::memory_order_acquire) == &set)
            return true;
    return false;
}

bool any_wait(const Set &set)
{
    for (ThreadRecord *record = g_waits.first.load(std::memory_order_acquire); record != nullptr; record = record->next)
        if (record->kernel_only_wait.load(std::memory_order_acquire) == &set ||
            record->aware_wait.load(std::memory_order_acquire) == &set)
            return true;
    return false;
}

namespace {

// Of the thread that a handler has forked in: it is counted nowhere, and on no list of a socket's or a set's.
void go_on_in_child(Frame &frame)
{
    frame.armed = 0;
    Looked *const items = frame.looked.at_least(0);
    for (std::size_t i = 0; i < frame.looked_count; ++i) {
        items[i].watcher.socket = nullptr;
        items[i].watcher.in_set = false;
    }
}

} // namespace

void forget_other_threads()
{
    if (t_wait.record != nullptr)
        for (Frame *frame = t_wait.record->frames; frame != nullptr; frame = frame->deeper)
            go_on_in_child(*frame);
    for (ThreadRecord *record = g_waits.first.load(std::memory_order_acquire); record != nullptr;
         record = record->next) {
        if (record == t_wait.record)
            continue;
        record->kernel_only_wait.store(nullptr, std::memory_order_relaxed);
        record->aware_wait.store(nullptr, std::memory_order_relaxed);
        for (Frame *frame = record->frames; frame != nullptr; frame = frame->deeper) {
            frame->looked_count = 0; // what they watched, and the list of sleepers, begin anew in this process
            new (&frame->sleeper) std::optional<sock::Sleeper>;
            libc::close_private(std::exchange(frame->edges, -1));
            frame->armed = 0;
            frame->stack = 0;
        }
        record->used.store(false, std::memory_order_relaxed);
    }
}

} // namespace vma::mux
