// SPDX-License-Identifier: BSD-2-Clause
// The memory that is counted in: the process's file (layout.hpp), made when there is something to count, and private
// memory for what has no place in it. Counting never fails and never waits: who has no record counts into one that
// nobody reads.
#pragma once

#include <limits.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/stats/count.hpp"
#include "compat/src/stats/layout.hpp"

namespace vma::stats {

using sock::LockGuard;
using sock::Mutex;

// What is there of who has nothing.
struct Nobodys {
    Header header;         // until there is a region; never written
    Mux set;               // counted into by who has none, and read by nobody
    alignas(64) Slot sink; // likewise, of a socket; any thread writes to it
    char path[PATH_MAX];   // of the file; the region's lock
};
extern constinit Nobodys g_nobodys;

// What is to be done by who comes next. Atomic.
struct Pending {
    std::atomic<bool> file_due{false};                                          // the file is to be made
    std::atomic<bool> makes_no_calls{false};                                    // give_up_file() was called
    std::atomic<const std::uint32_t *> asked{&g_nobodys.header.requests.count}; // the tool's requests, a number
    std::atomic<std::uint32_t> answered{0};
};

// What is counted in. Its lock; the header is read without.
struct Region {
    Pending pending;
    alignas(64) Mutex lock;
    std::atomic<Header *> header{&g_nobodys.header};
    std::uint32_t slots = 0;
    std::size_t size = 0; // 0: none yet
    std::uint64_t taken[kMostSlots / 64] = {};
    Slot *free_private = nullptr;
    bool published = false;
    pid_t owner = 0;
    dev_t device = 0;
    ino_t inode = 0;
};
extern constinit Region g_region;

// A record for a socket, with these facts. The sink if there is no memory. Any thread.
Slot &claim(int fd, std::uint8_t protocol, std::uint8_t family, bool nonblocking);
void give_back(Slot &slot);

// The device that carries a socket from now on; what it counts is the ring's, too.
void use_ring(Slot &slot, RingKind kind, const char *device);
// When the device's interrupts come.
// How often something that came was to wake a sleeper, and how often it did. 0: nothing is known.
void tell_interrupts(RingKind kind, const char *device, std::uint64_t asked, std::uint64_t received);
void tell_moderation(RingKind kind, const char *device, std::uint32_t frames, std::uint32_t microseconds);
// Of the device's memory that a connection sent from, before it ends.
void add_device_memory(const Slot &slot, std::uint64_t allocated, std::uint64_t packets, std::uint64_t bytes,
                       std::uint64_t out_of_buffer);

// What the ports of the process count, all of them; the pools are their sums.
void set_queues(const Queue *queues, std::uint32_t count);

Header &header(); // always there; nobody else reads it before the file is made

// Of an epoll set that counts for the first time, and its end. One that nobody reads when all are taken.
Mux &claim_set(int epfd);
void give_back(Mux &set);

void make_due_file();   // keeps errno
void answer_requests(); // likewise

// By who is next to a system call anyway, and by the helper thread: makes the file, and follows what vma_stats asks
// for.
inline void touch()
{
    if (g_region.pending.file_due.load(std::memory_order_relaxed)) [[unlikely]]
        make_due_file();
    if (get(*g_region.pending.asked.load(std::memory_order_relaxed)) !=
        g_region.pending.answered.load(std::memory_order_relaxed)) [[unlikely]]
        answer_requests();
}

void remove_file();         // the process ends; async-signal-safe
void give_up_file();        // there is none from now on: its end must make no system call
void replaced(bool really); // before exec, and after one that failed
void after_fork_in_child(); // the parent's file is not ours: its sockets' records go on in memory, from zero

// What only who moves a socket's bytes knows of it: tcp/describe.cpp. It adds lines, and waits for no lock that the
// caller may have.
class Text;
struct Describer {
    void (*stream)(int fd, Text &out); // of a TCP socket: windows and queues; nothing if it isn't tracked
};
extern const Describer kDescriber;

// Writes what is known of a socket, and of all with fd 0, to the log at a level of its own numbers. False: no such
// socket.
bool dump_to_log(int fd, int level);
void dump_to_file(const Slot &slot); // VMA_STATS_FILE, at close
void dump_open_to_file();            // likewise at the end, of those that are still open

} // namespace vma::stats
