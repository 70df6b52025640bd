// SPDX-License-Identifier: BSD-2-Clause
// What all processes of a soak know of each other: a file that each of them maps. It says of each stream how far either
// side has sent and read, who is at it, who holds it, and what was done last; so a stream can be forked, passed and
// killed, and each byte is still known where it has to come. A process that is killed leaves its locks taken: nobody
// touches that direction again.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace soak {

constexpr unsigned kWorkers = 8;
constexpr unsigned kStreams = 8192;           // of one run
constexpr std::uint64_t kDatagrams = 1 << 22; // likewise
constexpr unsigned kHolders = 16;             // processes that hold one side of a stream
constexpr unsigned kChildren = 64;
constexpr int kDescriptors = 2300; // below it are all that duplicate() asks for

// One call, for the report of a failure.
struct Record {
    pid_t pid;
    std::uint32_t microseconds; // since the start of the run
    std::uint64_t position;
    std::int64_t result; // what the call returned, or minus errno
    std::uint32_t length;
    char call[20];
};

class History
{
public:
    void add(const char *call, std::uint64_t position, std::uint32_t length, std::int64_t result);
    void print(const char *title) const; // oldest first

private:
    std::atomic<std::uint32_t> count_;
    std::array<Record, 12> records_;
};

// One direction of a stream.
struct Flow {
    std::atomic<pid_t> writer, reader;   // who sends or reads at the moment: 0 is nobody
    std::atomic<std::uint64_t> intended; // bytes up to which a send() was begun
    std::atomic<std::uint64_t> sent;     // bytes up to which it has returned
    std::atomic<std::uint64_t> read;     // bytes that the other side has read and found right
    std::atomic<bool> shut;              // shutdown(SHUT_WR) was called behind `sent`
    std::atomic<bool> ended;             // the other side has read the end, or an error
};

struct Side {
    std::atomic<pid_t> holders[kHolders];
    std::atomic<bool> leaving;     // some holder has closed it or was killed: the other side may see an end or a reset
    std::atomic<bool> error_seen;  // a call of this side has returned the error: the next recv() may return 0
    std::atomic<bool> nonblocking; // O_NONBLOCK, for good
    std::atomic<bool> shrunk;      // its buffers are not the default ones: nothing is sure to find room
    std::atomic<unsigned> on_the_way_to; // number of the worker that it is being passed to, plus 1
    History history;
};

// Side 0 has connected, side 1 has accepted. flows[s] is what side s sends.
struct Stream {
    std::atomic<bool> accepted;
    Flow flows[2];
    Side sides[2];
};

struct WorkerEntry {
    std::atomic<pid_t> pid;
    std::atomic<std::uint16_t> tcp_port[2], udp_port[2]; // IPv4, IPv6; 0: none
    std::atomic<bool> library;                           // it has it
    std::atomic<unsigned> reached;                       // phase of the end that it has come through
};

// What a process is doing, so that one that hangs can be told.
struct Doing {
    std::atomic<pid_t> pid;
    std::atomic<std::uint64_t> count; // of operations
    char operation[24];
    std::atomic<std::int64_t> stream;
};

enum Phase : unsigned { kGoing, kNothingNew, kTakeIn, kReadToTheEnd };

struct Totals {
    std::atomic<std::uint64_t> bytes, resets, ends, datagrams_sent, datagrams_read, forks, execs, spawns, passes, kills,
        stops, long_stops, fast_opens;
};

struct Ledger {
    std::uint64_t seed;
    std::uint64_t began_us;
    unsigned seconds;                  // until the end begins
    std::atomic<int> breaks;           // sends that are to leave a byte out: shows that it is found
    char without[200];                 // names of operations that are left out, with a comma behind each
    std::atomic<bool> failing, failed; // somebody is about to say what, and has said it
    std::atomic<unsigned> phase;
    std::atomic<unsigned> next_stream, next_port;
    std::atomic<std::uint64_t> next_datagram;
    WorkerEntry workers[kWorkers];
    Doing doing[kWorkers + kChildren]; // the workers, then children and grandchildren
    Totals totals;
    Stream streams[kStreams];
    std::atomic<std::uint8_t> datagram_read[kDatagrams];
};

extern Ledger *g_ledger; // of this process, once it has mapped it

void make_ledger(const char *path, std::uint64_t seed);
void map_ledger(const char *path);
std::uint32_t since_start_us();

// Ends this process, and with it the run, with all that is known of the stream (none: -1).
[[noreturn]] [[gnu::format(printf, 2, 3)]] void fail(std::int64_t stream, const char *format, ...);

// What the kernel has of connections, its queues and timers, on stderr. `which`: a filter of ss(8), or what its output
// goes through.
void show_sockets(const std::string &which);

void hold(Side &side);   // this process has one descriptor more of it
void let_go(Side &side); // and one less, which the other side may see
// Before a process is killed: it may be what a stream ends with. `worker`: its number, or -1 for a child.
void mark_dead(pid_t pid, int worker);
bool is_dead(pid_t pid); // ended, if not yet waited for

// A direction's lock, tried once.
class Claim
{
public:
    explicit Claim(std::atomic<pid_t> &owner);
    ~Claim();
    Claim(const Claim &) = delete;
    Claim &operator=(const Claim &) = delete;
    explicit operator bool() const { return owner_ != nullptr; }

private:
    std::atomic<pid_t> *owner_;
};

} // namespace soak
