// SPDX-License-Identifier: BSD-2-Clause
// One process of a soak: what it holds, and the operations that it chooses from. worker.cpp has their table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fabtests/posix/programs/soak/ledger.hpp"
#include "fabtests/sockets/programs/pattern.hpp"

namespace soak {

// One descriptor of one side of a stream.
struct Held {
    int fd;
    unsigned stream;
    unsigned side;
    bool watched; // in the process's epoll set

    Side &mine() const { return g_ledger->streams[stream].sides[side]; }
    Side &theirs() const { return g_ledger->streams[stream].sides[1 - side]; }
    Flow &out() const { return g_ledger->streams[stream].flows[side]; }
    Flow &in() const { return g_ledger->streams[stream].flows[1 - side]; }
    // An entry of an epoll set is a number and an open file.
    bool same_entry(const Held &other) const { return fd == other.fd && stream == other.stream && side == other.side; }
};

struct Worker {
    unsigned index = 0; // of the worker, in children as well
    unsigned slot = 0;  // of g_ledger->doing
    unsigned depth = 0; // 0 the worker, 1 its child, 2 a grandchild
    const char *ledger_path = "";
    const char *program = ""; // this one
    const char *preload = ""; // what LD_PRELOAD has to be for the library
    // What a peer has sent by its endpoint before it ended its span, and is not read, only programs with the library
    // find: doc/stream-protocol.md. So such a process gives what it has to others like itself.
    bool library = false;
    fabtest::Random random{0};
    std::vector<Held> held;
    std::vector<pid_t> children;
    int listeners[2] = {-1, -1}; // IPv4, IPv6
    int datagrams[2] = {-1, -1};
    std::uint16_t datagram_ports[2] = {0, 0};
    int mailbox = -1;
    int epoll = -1;
    std::vector<Held>
        left_in_epoll; // dup2() closed the number; the entry is there for as long as the file is open elsewhere

    std::size_t below(std::size_t n) { return random.below(n); }
    bool one_in(std::size_t n) { return random.below(n) == 0; }
    Held *any(); // nullptr: there is none
    bool is_left_in_epoll(const Held &h) const;
};

// Where the process is, for the one that watches: before each call that may wait.
void doing(const Worker &w, const char *operation, std::int64_t stream = -1);

// ---- streams.cpp: bytes
enum class Must { kMay, kWait };                // kWait: if bytes are on their way, wait for them, by any means
enum class Wait { kNot, kUntilSent, kLimited }; // kLimited: the socket has a time-out
void open_sockets(Worker &w);
void connect_stream(Worker &w);
void accept_stream(Worker &w);
void send_some(Worker &w);
void send_much(Worker &w);
void receive_some(Worker &w);
void receive_when_ready(Worker &w);
void look_at_epoll(Worker &w);
void close_one(Worker &w);
void shut_one(Worker &w);
void close_all(Worker &w);
void send_on(Worker &w, fabtest::Random &random, const Held &h, std::size_t len, Wait wait);
void receive_on(fabtest::Random &random, const Held &h, std::size_t len, Must must);
void finish_sending(Worker &w, const Held &h);
void read_to_end(Worker &w, const Held &h);
void close_held(Worker &w, std::size_t number);

// ---- options.cpp
void set_buffers(Worker &w);
void set_rate(Worker &w);

// ---- processes.cpp: descriptors and processes
void duplicate(Worker &w);
void fork_child(Worker &w);
void exec_child(Worker &w);
void start_program(Worker &w);
void hand_to_program(Worker &w);
void work_in_threads(Worker &w);
void pass_one(Worker &w);
void take_passed(Worker &w);
void reap_children(Worker &w, bool wait);
void open_mailbox(Worker &w);
// What an exec left: "fd:stream:side,...". `spawned`: the ledger doesn't have this process as their holder yet.
void adopt(Worker &w, const char *list, bool spawned);

// ---- datagrams.cpp
void open_datagrams(Worker &w);
void send_datagram(Worker &w);
void receive_datagrams(Worker &w);

// ---- worker.cpp
void work_as_child(Worker &w);        // a child's life after fork or exec: ends the process
bool left_out(const char *operation); // --without
void settle_in(Worker &w);            // a new process takes a place in g_ledger->doing

} // namespace soak
