// SPDX-License-Identifier: BSD-2-Clause
// Programs with an io_uring, for test_urings.py. Each prints what it was told, which is the same over the kernel; which
// sockets stayed accelerated is in the log. All ends are in this process.
//   urings there        whether there is io_uring
//   urings loop N       N connections, a UDP socket and a pipe in an epoll set that changes as libuv's does
//   urings errors       what EPOLL_CTL refuses, of an accelerated socket and of others
//   urings again        an entry is handed over twice without being written again
//   urings batches      both kinds of entries in one call, parts of what is there, and chains
//   urings takes WHAT   one connection is used by the io_uring as WHAT says, between calls; another one is not
//   urings datagrams    the same of UDP sockets
//   urings waits        the io_uring's own descriptor is waited for
//   urings link         a request that waits for another names a number that becomes a socket's
//   urings close        the io_uring closes an accelerated socket, whose number is given out again
//   urings threads N    N threads hand over entries to one io_uring
//   urings unproven     no socket is accelerated before the io_uring is entered
//   urings unentered    nor where it never is
//   urings resize       its memory is exchanged for more, and it hands over as much as that holds
//   urings left HOW     a call is left, by a jump out of a handler or the end of its thread, and others go on
//   urings sqpoll, urings set, urings dup, urings fork    what takes all sockets to the kernel
#include <fcntl.h>
#include <linux/time_types.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/io_uring/left.hpp"
#include "fabtests/sockets/programs/uring.hpp"
#include "fabtests/sockets/programs/uring_controls.hpp"
#include "fabtests/sockets/programs/uring_loop.hpp"

using namespace fabtest;

namespace {

// ---- sockets that the io_uring takes

// Sends `text` from one end as `what` says.
void send_by(Uring &uring, const std::string &what, int fd, const char *text)
{
    const auto length = static_cast<unsigned>(std::strlen(text));
    iovec part = {const_cast<char *>(text), length};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    int pair[2] = {-1, -1};
    io_uring_sqe &entry = uring.next(IORING_OP_SEND, fd);
    entry.addr = reinterpret_cast<std::uintptr_t>(text);
    entry.len = length;
    if (what == "write") {
        entry.opcode = IORING_OP_WRITE;
    } else if (what == "writev") {
        entry.opcode = IORING_OP_WRITEV;
        entry.addr = reinterpret_cast<std::uintptr_t>(&part);
        entry.len = 1;
    } else if (what == "sendmsg") {
        entry.opcode = IORING_OP_SENDMSG;
        entry.addr = reinterpret_cast<std::uintptr_t>(&message);
        entry.len = 1;
    } else if (what == "splice") {
        must(::pipe(pair), "pipe");
        must(static_cast<int>(::write(pair[1], text, length)), "write");
        entry.opcode = IORING_OP_SPLICE;
        entry.addr = ~std::uint64_t{0};
        entry.off = ~std::uint64_t{0};
        entry.splice_fd_in = pair[0];
    } else if (what == "file") {
        must(static_cast<int>(::syscall(SYS_io_uring_register, uring.fd, IORING_REGISTER_FILES, &fd, 1)), "register");
        entry.flags = IOSQE_FIXED_FILE;
        entry.fd = 0;
    } else if (what == "async") {
        entry.flags = IOSQE_ASYNC;
    }
    std::printf("%s: %d\n", what.c_str(), uring.run());
    ::close(pair[0]);
    ::close(pair[1]);
}

std::string received(int fd, std::size_t length)
{
    std::string text(length, 0);
    receive_all(fd, text.data(), length);
    return text;
}

void receive_by(Uring &uring, const std::string &what, int fd)
{
    char text[7] = {};
    if (what == "poll") {
        uring.next(IORING_OP_POLL_ADD, fd).poll32_events = POLLIN;
        std::printf("poll: %d\n", uring.run() & POLLIN);
        receive_all(fd, text, 6);
    } else {
        io_uring_sqe &entry = uring.next(what == "read" ? IORING_OP_READ : IORING_OP_RECV, fd);
        entry.addr = reinterpret_cast<std::uintptr_t>(text);
        entry.len = 6;
        std::printf("%s: %d\n", what.c_str(), uring.run());
    }
    std::printf("in between: %s\n", text);
}

void takes(const std::string &what)
{
    Entered uring(8);
    const Ends taken = accelerated();
    const Ends other = accelerated();
    send_all(taken.a, "first.", 6);
    if (what == "recv" || what == "read" || what == "poll") {
        send_all(taken.a, "second", 6);
        std::printf("before: %s\n", received(taken.b, 6).c_str());
        receive_by(uring, what, taken.b);
    } else {
        send_by(uring, what, taken.a, "second");
        std::printf("received: %s\n", received(taken.b, 12).c_str());
    }
    talk(taken, 50);
    talk(other, 50);
}

void datagrams()
{
    Entered uring(8);
    const Ends ends = udp_pair();
    talk(ends, 400);
    send_by(uring, "send", ends.a, "second");
    std::printf("received: %s\n", received(ends.b, 6).c_str());
    talk(ends, 50);
    send_all(ends.a, "third.", 6);
    receive_by(uring, "recv", ends.b);
    talk(ends, 50);
}

int wait_by(int way, int set, int first, int second)
{
    epoll_event event = {};
    pollfd both[2] = {{first, POLLIN, 0}, {second, POLLIN, 0}};
    fd_set bits;
    FD_ZERO(&bits);
    FD_SET(first, &bits);
    FD_SET(second, &bits);
    if (way == 0)
        return ::epoll_wait(set, &event, 1, -1);
    return way == 1 ? ::poll(both, 2, -1) : ::select(std::max(first, second) + 1, &bits, nullptr, nullptr, nullptr);
}

// Its own descriptor is one like any other.
void waits_for_it()
{
    Entered uring(8);
    const int set = must(::epoll_create1(0), "epoll_create1");
    const Ends ends = accelerated();
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = uring.fd;
    must(::epoll_ctl(set, EPOLL_CTL_ADD, uring.fd, &event), "epoll_ctl");
    event.data.fd = ends.b;
    must(::epoll_ctl(set, EPOLL_CTL_ADD, ends.b, &event), "epoll_ctl");
    for (int i = 0; i < 3; ++i) {
        __kernel_timespec soon = {0, 1000000};
        io_uring_sqe &entry = uring.next(IORING_OP_TIMEOUT, -1);
        entry.addr = reinterpret_cast<std::uintptr_t>(&soon);
        entry.len = 1;
        uring.enter(1, 0);
        int found = -1;
        do // the kernel's completion interrupts the wait, now and then
            found = wait_by(i, set, uring.fd, ends.b);
        while (found < 0 && errno == EINTR);
        std::printf("told: %d, %s\n", found, name_of(uring.completed().at(0).res));
        talk(ends, 10);
    }
    must(::epoll_ctl(set, EPOLL_CTL_DEL, uring.fd, nullptr), "epoll_ctl");
}

// The second of a chain is looked up when the first has come to its end.
void link_to_a_number()
{
    Entered uring(8);
    int pair[2];
    must(::pipe(pair), "pipe");
    const int number = must(::fcntl(pair[0], F_DUPFD, 100), "F_DUPFD"); // free again at once
    ::close(number);
    char byte = 0;
    io_uring_sqe &first = uring.next(IORING_OP_READ, pair[0]);
    first.addr = reinterpret_cast<std::uintptr_t>(&byte);
    first.len = 1;
    first.flags = IOSQE_IO_LINK;
    io_uring_sqe &second = uring.next(IORING_OP_WRITE, number);
    second.addr = reinterpret_cast<std::uintptr_t>("second");
    second.len = 6;
    uring.enter(2, 0);
    Ends ends = connected();
    must(::dup2(ends.a, number), "dup2");
    ::close(ends.a);
    ends.a = number;
    talk(ends, 200);
    talk(accelerated(), 50);
    send_all(ends.a, "first.", 6);
    must(static_cast<int>(::write(pair[1], "x", 1)), "write");
    uring.enter(0, 2);
    for (const io_uring_cqe &done : uring.completed())
        std::printf("link: %d\n", done.res);
    send_all(ends.a, "third.", 6);
    std::printf("received: %s\n", received(ends.b, 18).c_str());
}

void close_by_uring()
{
    Entered uring(8);
    const Ends ends = accelerated();
    const Ends other = accelerated();
    send_all(ends.a, "last", 4);
    uring.next(IORING_OP_CLOSE, ends.a);
    std::printf("close: %s\n", name_of(uring.run()));
    char rest[8] = {};
    receive_all(ends.b, rest, 4);
    std::printf("%s, then %zd\n", rest, ::recv(ends.b, rest, 1, 0));
    const int file = must(::fcntl(must(::open("/proc/self/exe", O_RDONLY), "open"), F_DUPFD, ends.a), "F_DUPFD");
    std::printf("its number again: %d, %zd bytes\n", file == ends.a, ::read(file, rest, 4));
    talk(other, 50);
}

void threads(int count)
{
    Entered uring(64);
    std::mutex lock;
    const auto work = [&](int i) {
        const Ends ends = accelerated();
        const int set = must(::epoll_create1(0), "epoll_create1");
        for (int round = 0; round < 300; ++round) {
            epoll_event event = {};
            event.events = EPOLLIN;
            {
                const std::lock_guard<std::mutex> guard(lock);
                change(uring, set, round % 2 == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, ends.b, &event).flags =
                    IOSQE_CQE_SKIP_SUCCESS;
            }
            if (::syscall(SYS_io_uring_enter, uring.fd, 1, 0, 0, nullptr, 0UL) != 1)
                die("io_uring_enter of thread %d", i);
            exchange(ends.a, ends.b, static_cast<unsigned>(round));
            epoll_event got = {};
            if (round % 2 == 0 && i % 2 == 0) {
                send_all(ends.a, "x", 1);
                must(::epoll_wait(set, &got, 1, -1), "epoll_wait");
                receive_all(ends.b, &got, 1);
            }
        }
    };
    std::deque<std::thread> all;
    for (int i = 0; i < count; ++i)
        all.emplace_back(work, i);
    for (std::thread &thread : all)
        thread.join();
    std::printf("failed: %zu\n", uring.completed().size());
}

// ---- what takes all sockets to the kernel, or keeps them there

void unproven()
{
    Uring uring(8);
    const Ends ends = connected();
    const Ends messages = udp_pair();
    talk(ends, 400);
    talk(messages, 400);
    for (const int early : {ends.a, ends.b, messages.a, messages.b})
        if (offload_expected() && Peer().is_offloaded(early))
            die("%d is accelerated, and the io_uring was not entered", early);
    uring.next(IORING_OP_NOP, -1);
    std::printf("nop: %s\n", name_of(uring.run()));
    accelerate(ends);
    accelerate(messages);
}

void unentered()
{
    const Uring uring(8);
    for (const Ends &ends : {connected(), udp_pair()}) {
        talk(ends, 400);
        ::close(ends.a);
        ::close(ends.b);
    }
}

// Kernels can where one task alone hands over, and runs what follows (which those before 6.1 don't know).
void resized()
{
    constexpr unsigned kOneTask = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    Uring uring(4, Uring::knows(kOneTask) ? kOneTask : 0);
    uring.next(IORING_OP_NOP, -1);
    uring.run();
    const Ends ends = accelerated();
    talk(ends, 50);
    uring.next(IORING_OP_NOP, -1).user_data = 1;
    std::printf("resize: %s\n", name_of(uring.resize(16)));
    for (unsigned i = 2; i <= (uring.size() == 16 ? 12 : 4); ++i)
        uring.next(IORING_OP_NOP, -1).user_data = i;
    uring.enter();
    for (const io_uring_cqe &done : uring.completed())
        std::printf("%llu: %s\n", done.user_data, name_of(done.res));
    send_all(ends.a, "first.", 6);
    send_by(uring, "send", ends.a, "second");
    std::printf("received: %s\n", received(ends.b, 12).c_str());
    talk(ends, 50);
}

void talk_before_and_after(void (*between)(Uring &uring, const Ends &ends))
{
    Entered uring(8);
    const Ends ends = accelerated();
    between(uring, ends);
    talk(ends, 50);
    talk(connected(), 200);
}

void by_sqpoll(Uring &, const Ends &)
{
    const Uring polled(8, IORING_SETUP_SQPOLL);
}

void polls_set(Uring &uring, const Ends &ends)
{
    const int set = must(::epoll_create1(0), "epoll_create1");
    epoll_event event = {};
    event.events = EPOLLIN;
    must(::epoll_ctl(set, EPOLL_CTL_ADD, ends.b, &event), "epoll_ctl");
    uring.next(IORING_OP_POLL_ADD, set).poll32_events = POLLIN;
    uring.enter(1, 0);
    send_all(ends.a, "x", 1);
    uring.enter(0, 1);
    std::printf("the set: %d\n", uring.completed().at(0).res & POLLIN);
    receive_all(ends.b, &event, 1);
}

void by_another_number(Uring &uring, const Ends &ends)
{
    const int copy = must(::dup(uring.fd), "dup");
    io_uring_sqe &entry = uring.next(IORING_OP_SEND, ends.a);
    entry.addr = reinterpret_cast<std::uintptr_t>("second");
    entry.len = 6;
    send_all(ends.a, "first.", 6);
    ::syscall(SYS_io_uring_enter, copy, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0UL);
    std::printf("received: %s\n", received(ends.b, 12).c_str());
}

void in_a_child(Uring &uring, const Ends &ends)
{
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        uring.next(IORING_OP_NOP, -1);
        uring.run();
        _exit(0);
    }
    int status = 0;
    must(::waitpid(child, &status, 0), "waitpid");
    uring.next(IORING_OP_NOP, -1);
    std::printf("child %d, then %s\n", status, name_of(uring.run()));
    talk(ends, 10);
}

struct Command {
    const char *name;
    void (*run)(const char *argument);
};

const Command kCommands[] = {
    {"there", [](const char *) { const Entered uring(8); }},
    {"loop", [](const char *n) { libuv_loop(std::atoi(n)); }},
    {"errors", [](const char *) { errors(); }},
    {"again", [](const char *) { again(); }},
    {"batches", [](const char *) { batches(); }},
    {"takes", [](const char *what) { takes(what); }},
    {"datagrams", [](const char *) { datagrams(); }},
    {"waits", [](const char *) { waits_for_it(); }},
    {"link", [](const char *) { link_to_a_number(); }},
    {"close", [](const char *) { close_by_uring(); }},
    {"threads", [](const char *n) { threads(std::atoi(n)); }},
    {"unproven", [](const char *) { unproven(); }},
    {"unentered", [](const char *) { unentered(); }},
    {"resize", [](const char *) { resized(); }},
    {"left", [](const char *how) { left(how); }},
    {"sqpoll", [](const char *) { talk_before_and_after(by_sqpoll); }},
    {"set", [](const char *) { talk_before_and_after(polls_set); }},
    {"dup", [](const char *) { talk_before_and_after(by_another_number); }},
    {"fork", [](const char *) { talk_before_and_after(in_a_child); }},
};

} // namespace

int main(int argc, char **argv)
{
    for (const Command &command : kCommands)
        if (argc > 1 && std::strcmp(argv[1], command.name) == 0) {
            command.run(argc > 2 ? argv[2] : "");
            return 0;
        }
    return 2;
}
