// SPDX-License-Identifier: BSD-2-Clause
// What both sides of a socket test program share: arguments, the control channel to the other side (a UNIX socket that
// the harness made), TCP connections, and waiting until a connection is accelerated where the harness says it will be.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace fabtest {

[[noreturn]] [[gnu::format(printf, 1, 2)]] void die(const char *format, ...); // message on stderr, exit status 3

// die() with errno's name unless the call succeeded.
int must(int result, const char *what);

enum class Family { kInet4, kInet6, kMapped }; // kMapped: an IPv6 listener, an IPv6 connector to ::ffff:127.0.0.1

struct Peer {
    bool server = false;
    int control = -1; // SOCK_SEQPACKET to the other side
    Family family = Family::kInet4;
    const char *at = nullptr; // the server's address in numbers; loopback if there is none
    int listener = -1;        // server only
    std::uint16_t port = 0;

    // Both sides must get here before either goes on.
    void step() const;

    // A number from one side to the other.
    void tell(std::uint64_t value) const;
    std::uint64_t hear() const;
    bool heard(std::uint64_t *value) const; // hear() if there is something already
    bool both(bool here) const;             // on both sides: what is true here is so there, too

    void open_listener();            // both sides: the server listens, the client learns the port
    int connect_plain();             // both sides: a new connection, nothing sent on it yet
    void offload(int fd) const;      // both sides: exchange bytes until the connection is accelerated, if it is to be
    bool is_offloaded(int fd) const; // the debug log says so; true where nothing is to be waited for

    sockaddr_storage address(socklen_t *len) const;
};

// Options common to all programs: "server" or "client", --control FD, --family 4|6|mapped, --at ADDRESS of the server
// (of that family). Consumes what it knows.
Peer parse_peer(int *argc, char **argv);

// True when the harness expects this run's connections to be accelerated (FABTEST_LIFT=1).
bool offload_expected();

// Until another thread of this process that has nothing more to do than to wait does so: it sleeps, or has spun for
// some milliseconds of a processor's time, however late it got them.
void await_waiting(pid_t task);

void send_all(int fd, const void *buf, std::size_t len);
void receive_all(int fd, void *buf, std::size_t len);

// A descriptor, with one byte, over a UNIX socket. Who gives it keeps his own; who takes it dies where none comes.
void give_descriptor(int over, int fd);
int take_descriptor(int over);

} // namespace fabtest
