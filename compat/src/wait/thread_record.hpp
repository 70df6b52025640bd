// SPDX-License-Identifier: BSD-2-Clause
// What the multiplexers keep for each thread: which set it waits in, and the frames of its sleeping calls. A frame lies
// on the heap, as a wait may be left without our destructors running: by siglongjmp out of a signal handler, by
// cancellation.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "compat/src/base/clock.hpp"
#include "compat/src/base/oversubscription.hpp"
#include "compat/src/base/spin_habit.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/thread_key.hpp"
#include "compat/src/table/socket.hpp"

namespace vma::mux {

struct Set;

// One descriptor of a poll() that user space has to look at.
struct Looked {
    sock::Watcher watcher; // first: notify() finds the rest by it
    struct Frame *frame = nullptr;
    sock::Socket *socket = nullptr; // or
    Set *set = nullptr;             // a nested epoll set with entries of its own
    int fd = -1;
    std::uint32_t index = 0;    // in the caller's array
    std::uint32_t interest = 0; // POLL* bits asked for
};

// A growing array whose memory is kept for the next call. T is trivial.
template <typename T> class Scratch
{
public:
    Scratch() = default;
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    ~Scratch();
    T *at_least(std::size_t count); // contents are lost; nullptr: no memory

private:
    void unmap();
    T *items_ = nullptr;
    std::size_t room_ = 0;
};

void unwatch_set(Set &set, sock::Watcher &watcher); // mux/nested.cpp

// One call that may have to wait for tracked sockets: poll(), select(), or a send or receive.
struct Frame {
    Scratch<pollfd> wanted; // select(): the sets as an array
    Scratch<pollfd> kernel; // what is handed to the kernel
    Scratch<Looked> looked;
    std::size_t looked_count = 0;
    std::optional<sock::Sleeper> sleeper;
    std::atomic<bool> notified{false};
    sock::RingMask armed = 0; // rings that count it among those who sleep
    int edges = -1;           // of hear_edges(): readable when something comes
    std::uintptr_t stack = 0; // where its call lies; 0: free
    Frame *deeper = nullptr;

    // From here on it hears of kicks: at that place, or on descriptors (sock::kNoPlace).
    void begin_sleep(std::uint32_t place);
    // The same for a sleep on this socket alone, which it watches. False: no memory.
    bool watch_one(sock::Socket &socket, std::uint32_t place);
    bool arm(sock::RingMask rings); // sock::engine_arm()
    void woken();                   // sock::engine_woken(), where it has armed them
    // What the kernel gets to read, or an error, from now on; `there`: what poll() tells by now. False: can't be had.
    bool hear_edges(int fd, std::uint32_t &there);
    void end_sleep(); // detaches all watchers
    void release();   // all that is left of these; the frame is free again
};

struct ThreadRecord {
    std::atomic<Set *> kernel_only_wait{
        nullptr};                           // asleep in this set's kernel descriptor, unaware of user-space entries
    std::atomic<Set *> aware_wait{nullptr}; // in a wait on this set that looks at its user-space state
    std::atomic<bool> used{false};
    Frame *frames = nullptr;
    KernelShare poll_share;
    SpinHabit spins; // of poll() and select()
    Rest rest;
    std::uint32_t group = 0; // of threads, whose counters of select() and poll() it has
    ThreadRecord *next = nullptr;
};

// Of each thread, its own.
struct WaitThread {
    ThreadRecord *record = nullptr;
    Set *polling = nullptr; // the thread will harvest this set itself (mux/ready.cpp)
    int wake_fd = -1;       // an eventfd for its sleeps, once it has slept on a descriptor
};
[[gnu::tls_model("initial-exec")]] extern thread_local constinit WaitThread t_wait;

// What waits of the process share.
struct Waits {
    std::atomic<bool> membarrier{false}; // membarrier(2) works here; set by the first thread that has a record
    // Records of all threads there ever were; none goes. Atomic.
    libc::ThreadKey record_key;
    libc::ThreadKey wake_key;
    std::atomic<ThreadRecord *> first{nullptr};
    std::atomic<std::uint32_t> made{0};
    std::atomic<unsigned> taken{0}; // of the reserved ones
    ThreadRecord reserved[16];
    // wait.cpp; own lock.
    alignas(64) sock::Mutex sleepers_lock;
    sock::Sleeper *sleepers = nullptr;
    std::atomic<unsigned> process{0}; // another number in a forked child, where nobody counts who slept in the parent
    alignas(64) std::atomic<unsigned> fence{0};
};
extern constinit Waits g_waits;

// A full fence for rare paths that also ThreadSanitizer understands: of two threads that pass here, the second sees all
// that the first had stored.
inline void full_fence()
{
    g_waits.fence.fetch_add(1, std::memory_order_seq_cst);
}

ThreadRecord *make_thread_record(); // nullptr: no memory

inline ThreadRecord *thread_record()
{
    ThreadRecord *const record = t_wait.record;
    return record != nullptr ? record : make_thread_record();
}

void notify_frame(sock::Watcher *watcher, std::uint32_t); // of a Looked: wakes its frame's sleeper

// The frame for a call that starts now. nullptr: no memory.
Frame *acquire_frame();

// A store to one's own record, then a load of shared state: ordered against a store to shared state, then
// synchronise_records(), then a look at all records. The rare side pays for both.
inline void order_record()
{
    if (g_waits.membarrier.load(std::memory_order_relaxed)) [[likely]]
        std::atomic_signal_fence(std::memory_order_seq_cst);
    else
        full_fence();
}
void synchronise_records();
// From now on by fences alone, which each wait pays for: a filter of system calls comes.
void synchronise_without_membarrier();

bool any_kernel_only_wait(const Set &set); // of other threads
bool any_wait(const Set &set);

void forget_other_threads(); // in a forked child

} // namespace vma::mux
