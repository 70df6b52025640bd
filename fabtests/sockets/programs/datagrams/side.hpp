// SPDX-License-Identifier: BSD-2-Clause
// What datagram scenarios are written with. As with streams (semantics/scenario.hpp), a scenario is one function that
// both sides run in lockstep, and its transcript must be the same on the kernel and over the library. "Links" are pairs
// of UDP sockets, one a side, that have talked enough to be accelerated where that is to come.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <initializer_list>
#include <string>

#include "fabtests/sockets/programs/datagrams/address.hpp"

namespace fabtest {

// What one receiving call said.
struct Received {
    ssize_t result = -1;
    int error = 0;
    std::string data;    // as far as the buffer went
    Address from;        // len 0: the call tells none
    int flags = 0;       // msg_flags
    std::string control; // cmsgs in words, or nothing
};

enum class Form { kRead, kReadv, kRecv, kRecvfrom, kRecvmsg, kRecvmmsg };
inline constexpr Form kForms[] = {Form::kRead,     Form::kReadv,   Form::kRecv,
                                  Form::kRecvfrom, Form::kRecvmsg, Form::kRecvmmsg};
const char *form_name(Form form);
Received receive_by(Form form, int fd, std::size_t len, int flags = 0, std::size_t control_len = 0);
std::string control_text(msghdr &message); // its cmsgs in words; nothing in them that differs from run to run

// One side's end of a link.
struct Link {
    int fd = -1;
    Address other; // of the other end, as it is seen from here
};

using Prepare = std::function<void(int fd)>;

struct Datagrams : Peer {
    std::string bound = "127.0.0.1", to = "127.0.0.1", from = "127.0.0.1"; // --bind, --to, --from
    int transcript = STDERR_FILENO;
    Link link; // ready when a scenario begins, named C and S

    // Both sides call these, at the same place.
    Link open(const char *client_name, const char *server_name, const Prepare &prepare = {}); // before bind()
    void warm(const Link &link) const; // round trips until it is accelerated
    void deliver(const Link &link, std::initializer_list<std::string> texts) const; // client sends, then step()
    void still_works(const Link &link) const;                                       // one round trip

    // Ports differ from run to run: the transcript has names.
    void name_port(std::uint16_t port, const std::string &name) const;
    std::uint16_t share_port(std::uint16_t port, bool mine, const char *name) const; // the other side learns it
    static std::string name(const Address &address);

    [[gnu::format(printf, 2, 3)]] void say(const char *format, ...) const; // one transcript line
    long show(const char *call, long result) const;                        // "call = 5" or "call = -1 EAGAIN"
    void show(const char *call, const Received &received) const;
    Received take(const char *call, int fd, int flags = 0) const; // recvmsg, with all that it tells
    void nothing_there(const char *when, int fd) const;           // MSG_DONTWAIT
    unsigned drain(int fd) const;                                 // how many datagrams were there
};

std::string event_text(unsigned poll_events); // "IN|ERR"
void set_nonblocking(int fd, bool on);
std::string pattern_text(std::size_t len); // to fill long datagrams

// A process without the library, whatever this one has: it sends what it is told to, when it is told.
class Stranger
{
public:
    Stranger();
    ~Stranger();
    Stranger(const Stranger &) = delete;
    Stranger &operator=(const Stranger &) = delete;
    void send(const Address &to, const std::string &text) const; // has returned from the call when this does
    Address address(const Address &to);                          // what it sends by to such an address

private:
    int control_ = -1;
    pid_t pid_ = -1;
};
int be_a_stranger(int control);

// What programs that a scenario starts do: see handing_on.cpp.
int inherited_socket(int fd, int control);

struct Registration {
    Registration(const char *name, void (*run)(Datagrams &));
    const char *name;
    void (*run)(Datagrams &);
    Registration *next;
};

#define SCENARIO(name)                                                                                                 \
    static void name(::fabtest::Datagrams &me);                                                                        \
    static ::fabtest::Registration register_##name(#name, name);                                                       \
    static void name([[maybe_unused]] ::fabtest::Datagrams &me)

// One that the harness runs with addresses of each kind (test_datagrams.py): it must not name any.
#define EVERY_FAMILY(name) SCENARIO(name)

} // namespace fabtest
