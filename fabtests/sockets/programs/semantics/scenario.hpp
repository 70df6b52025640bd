// SPDX-License-Identifier: BSD-2-Clause
// A semantics test is a scenario: one function that both sides of a connection run, in lockstep where order matters.
// Each side prints what the calls returned; the harness compares the transcripts of the kernel and of the library.
// A transcript must hold nothing that may differ between two runs on the kernel.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "fabtests/sockets/programs/pattern.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace fabtest {

struct Side : Peer {
    int fd = -1; // the scenario's connection: made and, where it is expected, accelerated

    int connection(); // a further one, made and offloaded like the first: both sides call it

    // One transcript line.
    [[gnu::format(printf, 2, 3)]] void say(const char *format, ...) const;
    // "call = 5" or "call = -1 EAGAIN". Looks at errno first thing.
    long show(const char *call, long result) const;
};

// Waiting for a state; each dies after 20 s.
void await_readable(int fd, int bytes);  // FIONREAD says at least so many
void await_acknowledged(int fd);         // SIOCOUTQ says nothing is on its way
void await_events(int fd, short events); // poll() reports at least these
void fill_until_full(int fd);            // non-blocking sends until EAGAIN, and stays so for a while
std::size_t drain(int fd);               // reads until the end of the stream; bytes read
void set_nonblocking(int fd, bool on);
void send_text(int fd, const char *text);
std::string receive_text(int fd, std::size_t len); // exactly len bytes
void write_pattern(int fd, const Pattern &pattern, std::uint64_t from, std::uint64_t to);
void read_pattern(int fd, const Pattern &pattern, std::uint64_t from, std::uint64_t to);
std::string event_names(unsigned poll_events); // "IN|HUP"; epoll's bits have the same values
std::int64_t now_ms();

int inherited_socket(char **argv); // what a program does that descriptors.cpp starts on a socket it inherits

// Calls the function on SIGALRM every `milliseconds` until destroyed; SA_RESTART or not.
class Alarms
{
public:
    Alarms(int milliseconds, bool restart, void (*handler)(int));
    ~Alarms();
    Alarms(const Alarms &) = delete;
    Alarms &operator=(const Alarms &) = delete;
};

struct Registration {
    Registration(const char *name, void (*run)(Side &));
    const char *name;
    void (*run)(Side &);
    Registration *next;
};

#define SCENARIO(name)                                                                                                 \
    static void name(::fabtest::Side &me);                                                                             \
    static ::fabtest::Registration register_##name(#name, name);                                                       \
    static void name([[maybe_unused]] ::fabtest::Side &me)

} // namespace fabtest
