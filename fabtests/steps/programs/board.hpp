// SPDX-License-Identifier: BSD-2-Clause
// What the processes of one run of the step harness know of each other: memory that all of them map. It says how far
// each direction was sent and read, so whoever is killed wherever, what has to come is still known; and it has the few
// words by which the run goes on.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace step {

constexpr int kBoardFd = 100; // of every process of a run

enum Role : unsigned { kWriter, kReader }; // the writer connects, the reader accepts

constexpr int kOpen = -1; // Flow::end: neither an end nor an error was read

// What one role sends to the other.
struct Flow {
    std::atomic<std::uint64_t> begun;    // bytes up to which a send was begun
    std::atomic<std::uint64_t> accepted; // bytes up to which it has returned
    std::atomic<std::uint64_t> read;     // bytes that were read and were right
    std::atomic<std::int64_t> wrong;     // position of the first wrong byte, or -1
    std::atomic<int> end;                // kOpen, 0 (the end) or an errno
    std::atomic<int> send_error;         // an errno that ended the sending, or 0
};

constexpr unsigned kNobodyCounts = ~0U;

// What the victim's handler of SIGUSR1 does, wherever it comes. With kCancels there is none: a thread of the victim's
// cancels the one that is stepped.
enum Handler : unsigned { kNoHandler, kCounts, kPolls, kSends, kReceives, kJumps, kCancels };

struct Board {
    std::atomic<bool> with_library; // both sides have it: the connection has to be offloaded before the stretch
    std::atomic<int> buffer;        // SO_SNDBUF and SO_RCVBUF; 0 leaves the defaults
    std::atomic<unsigned> victim;   // the role that is stepped
    std::atomic<unsigned> handler;
    std::atomic<int> port;
    std::atomic<bool> offloaded[2];         // what this role sends goes by an endpoint
    std::atomic<unsigned> rounds;           // of the ping-pong, once the writer knows
    std::atomic<pid_t> marked;              // the victim's main thread has come to the stretch: its number
    std::atomic<bool> go, begun, finished;  // it may go on; it has begun; it is over
    std::atomic<bool> computing;            // bytes are filled in or checked, nobody's business: a survey goes past it,
    std::atomic<std::uint64_t> computed_at; // to here
    std::atomic<bool> full;                 // the writer has sent what the scenario wants to be unread
    std::atomic<bool> returning, returned;  // the reader gives the socket back to the kernel, has done so
    std::atomic<bool> asked;                // the writer's waiting send has come back
    std::atomic<bool> released;             // the reader may read
    std::atomic<unsigned> rests;         // counts for as long as the stepped thread only waits; kNobodyCounts at last
    std::atomic<bool> cancel, cancelled; // the stepped thread is to be, has been (it may not have noticed)
    std::atomic<unsigned> handled;       // signals whose handler has begun
    std::atomic<bool> failed;
    char why[200];
    Flow flows[2];  // by the role that sends
    Flow asides[2]; // what handlers send
};

inline Board *map_board(int fd)
{
    void *const place = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return place == MAP_FAILED ? nullptr : static_cast<Board *>(place);
}

} // namespace step
