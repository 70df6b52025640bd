// SPDX-License-Identifier: BSD-2-Clause
// Starts actors, talks to them, and finds out whether one waits. See world.hpp.
#include "fabtests/sockets/programs/compared/world.hpp"
#include "fabtests/patience.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace compared {

namespace {

[[noreturn]] void die(const char *what)
{
    ::fprintf(stderr, "compared: %s: %s\n", what, ::strerror(errno));
    ::_exit(2);
}

bool is_here(int channel, int milliseconds)
{
    pollfd polled{channel, POLLIN, 0};
    return ::poll(&polled, 1, milliseconds) > 0;
}

void pause_a_moment()
{
    ::usleep(60);
}

// A UDP socket that is connected to itself.
int make_probe()
{
    const int probe = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto *const plain = reinterpret_cast<sockaddr *>(&address);
    if (probe < 0 || ::bind(probe, plain, length) != 0 || ::getsockname(probe, plain, &length) != 0 ||
        ::connect(probe, plain, length) != 0)
        die("no probe");
    return probe;
}

// proc(5): the state stands behind the name, which ends with the last parenthesis. 'X' where there is no such thread.
char state_of(pid_t process, pid_t thread)
{
    char path[64];
    ::snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process, thread);
    FILE *const file = ::fopen(path, "re");
    if (file == nullptr)
        return 'X';
    char text[256];
    const bool read = ::fgets(text, sizeof text, file) != nullptr;
    ::fclose(file);
    const char *const end = read ? ::strrchr(text, ')') : nullptr;
    return end != nullptr && end[1] == ' ' ? end[2] : 'X';
}

bool is_over(pid_t process)
{
    const char state = state_of(process, process);
    return state == 'X' || state == 'Z';
}

// The kernel has closed its descriptors, one after the other: the channel may be the first.
void await_end(pid_t process)
{
    const patience::Deadline deadline;
    while (!is_over(process)) {
        if (deadline.over())
            die("a process does not end");
        pause_a_moment();
    }
}

} // namespace

const char *name_of(Answer answer) noexcept
{
    return answer == Answer::kReplied ? "replied" : answer == Answer::kAsleep ? "sleeps" : "is gone";
}

void await_delivery()
{
    static const int probe = make_probe();
    for (int round = 0; round < 3; ++round) { // an answer to what is delivered, and the answer to that
        char byte = 0;
        if (::send(probe, &byte, 1, 0) != 1 || ::recv(probe, &byte, 1, 0) != 1)
            die("the probe is lost");
    }
}

World::~World()
{
    while (!seats_.empty())
        kill(seats_.begin()->first);
    if (descriptor_ >= 0)
        ::close(descriptor_);
}

void World::start(int actor)
{
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        die("socketpair");
    const pid_t child = ::fork();
    if (child == 0) {
        ::fcntl(pair[1], F_SETFD, 0);
        if (preload_ != nullptr)
            ::setenv("LD_PRELOAD", preload_, 1);
        ::execl("/proc/self/exe", "compared", "--actor", std::to_string(pair[1]).c_str(), nullptr);
        ::_exit(3);
    }
    ::close(pair[1]);
    seats_[actor] = {pair[0], child, child};
    await_greeting(actor);
}

void World::await_greeting(int actor)
{
    Reply reply;
    if (!is_here(seats_.at(actor).channel, patience::milliseconds()) || receive(actor, reply) != Answer::kReplied)
        die("an actor does not begin");
    seats_.at(actor).process = reply.process;
    seats_.at(actor).thread = reply.thread;
}

void World::tell(int actor, const Command &command, int newcomer, int descriptor)
{
    Seat &seat = seats_.at(actor);
    int pair[2] = {-1, descriptor};
    if (newcomer >= 0 && ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        die("socketpair");
    seat.busy = send_message(seat.channel, &command, sizeof command, pair[1]);
    if (newcomer < 0)
        return;
    ::close(pair[1]);
    seats_[newcomer] = {pair[0]};
    await_greeting(newcomer);
}

Answer World::receive(int actor, Reply &reply)
{
    Seat &seat = seats_.at(actor);
    int descriptor = -1;
    switch (receive_message(seat.channel, &reply, sizeof reply, &descriptor, false)) {
    case Arrival::kNothing:
        if (!is_over(seat.process)) // others may hold the channel that fork() has copied
            return Answer::kAsleep;
        [[fallthrough]];
    case Arrival::kOver:
        leave(seat.process);
        return Answer::kGone;
    case Arrival::kHere:
        break;
    }
    seat.busy = false;
    if (reply.thread != 0)
        seat.thread = reply.thread; // behind execve()
    if (descriptor >= 0) {
        if (descriptor_ >= 0)
            ::close(descriptor_);
        descriptor_ = descriptor;
    }
    return Answer::kReplied;
}

int World::take_descriptor()
{
    const int descriptor = descriptor_;
    descriptor_ = -1;
    return descriptor;
}

bool World::sleeps(const Seat &seat)
{
    return state_of(seat.process, seat.thread) == 'S';
}

Answer World::look(int actor, Reply &reply, bool ends)
{
    constexpr int kEnds = 3000; // milliseconds
    await_delivery();
    if (ends)
        is_here(seats_.at(actor).channel, kEnds);
    for (int asleep = 0; asleep < 3;) {
        const Answer answer = receive(actor, reply);
        if (answer != Answer::kAsleep)
            return answer;
        asleep = sleeps(seats_.at(actor)) ? asleep + 1 : 0;
        pause_a_moment();
    }
    return Answer::kAsleep;
}

Answer World::look_for(int actor, Reply &reply, Answer expected)
{
    constexpr int kUnexpected = 2; // milliseconds
    await_delivery();
    if (expected == Answer::kGone)
        await_end(seats_.at(actor).process);
    else
        is_here(seats_.at(actor).channel, expected == Answer::kAsleep ? kUnexpected : patience::milliseconds() / 4);
    return receive(actor, reply);
}

// All threads of the process end.
void World::leave(pid_t process)
{
    for (auto seat = seats_.begin(); seat != seats_.end();) {
        if (seat->second.process != process) {
            ++seat;
            continue;
        }
        ::close(seat->second.channel);
        seat = seats_.erase(seat);
    }
    await_end(process);
    ::waitpid(process, nullptr, WNOHANG);
}

void World::kill(int actor)
{
    const Seat seat = seats_.at(actor);
    ::kill(seat.process, SIGKILL);
    leave(seat.process);
}

} // namespace compared
