// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/sockets/programs/uring_controls.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cstdio>
#include <thread>

#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/uring.hpp"
#include "fabtests/sockets/programs/uring_loop.hpp"

namespace fabtest {

namespace {

int changed(Uring &uring, int set, int operation, int fd, unsigned events = EPOLLIN)
{
    epoll_event event = {};
    event.events = events;
    event.data.fd = fd;
    change(uring, set, operation, fd, &event);
    return uring.run();
}

void refusals(Uring &uring, const char *of, int fd)
{
    const int set = must(::epoll_create1(0), "epoll_create1");
    const auto tell = [&](const char *what, int result) { std::printf("%s: %s %s\n", of, what, name_of(result)); };
    tell("MOD of none", changed(uring, set, EPOLL_CTL_MOD, fd));
    tell("DEL of none", changed(uring, set, EPOLL_CTL_DEL, fd));
    tell("ADD", changed(uring, set, EPOLL_CTL_ADD, fd));
    tell("ADD", changed(uring, set, EPOLL_CTL_ADD, fd));
    tell("ADD", changed(uring, set, EPOLL_CTL_ADD, fd));
    tell("MOD", changed(uring, set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT));
    tell("MOD exclusive", changed(uring, set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLEXCLUSIVE));
    tell("an operation that is none", changed(uring, set, 7, fd));
    change(uring, set, EPOLL_CTL_MOD, fd, nullptr);
    tell("no event", uring.run());
    tell("DEL", changed(uring, set, EPOLL_CTL_DEL, fd));
    tell("DEL", changed(uring, set, EPOLL_CTL_DEL, fd));
    tell("MOD", changed(uring, set, EPOLL_CTL_MOD, fd));
    tell("ADD", changed(uring, set, EPOLL_CTL_ADD, fd));
    tell("not in a set", changed(uring, fd, EPOLL_CTL_ADD, set));
    tell("no set", changed(uring, 999, EPOLL_CTL_ADD, set));
    tell("ADD after a close", (::close(fd), changed(uring, set, EPOLL_CTL_ADD, fd)));
    ::close(set);
}

// What is written gets numbers in its order.
struct Batch {
    Uring &uring;
    const Ends &ends;
    int set = must(::epoll_create1(0), "epoll_create1");
    epoll_event event = {EPOLLIN, {}};
    unsigned number = 0;

    io_uring_sqe &numbered(io_uring_sqe &entry)
    {
        entry.user_data = ++number;
        return entry;
    }
    io_uring_sqe &nop() { return numbered(uring.next(IORING_OP_NOP, -1)); }
    io_uring_sqe &control(int operation) { return numbered(change(uring, set, operation, ends.b, &event)); }
    void tell()
    {
        for (const io_uring_cqe &done : uring.completed())
            std::printf("%d: %s\n", static_cast<int>(done.user_data), name_of(done.res));
    }
};

void mix(Batch &batch)
{
    batch.nop();
    batch.control(EPOLL_CTL_ADD);
    batch.nop();
    batch.control(EPOLL_CTL_ADD);
    batch.control(EPOLL_CTL_DEL);
    batch.control(EPOLL_CTL_DEL);
    batch.nop();
}

void in_parts(Batch &batch)
{
    mix(batch);
    batch.uring.enter();
    batch.tell();
    mix(batch);
    for (const unsigned part : {1U, 2U, 3U, 1U})
        batch.uring.enter(part, part);
    batch.tell();
    batch.control(EPOLL_CTL_ADD);
    batch.nop();
    for (const char *const what : {"of more", "of none"})
        std::printf("%s: %ld\n", what,
                    ::syscall(SYS_io_uring_enter, batch.uring.fd, 9, 9, IORING_ENTER_GETEVENTS, nullptr, 0UL));
    batch.tell();
}

void chains(Batch &batch)
{
    batch.control(EPOLL_CTL_MOD).flags = IOSQE_IO_LINK;
    batch.nop();
    batch.uring.enter();
    batch.tell();
    batch.control(EPOLL_CTL_ADD).flags = IOSQE_IO_LINK; // fails, and with it the rest of its chain
    batch.nop();
    batch.uring.enter();
    batch.tell();
}

// The change is made while the call waits for what comes by it.
void waits_for_both(Batch &batch)
{
    int pair[2];
    must(::pipe(pair), "pipe");
    char byte = 0;
    batch.control(EPOLL_CTL_DEL);
    batch.control(EPOLL_CTL_ADD);
    io_uring_sqe &entry = batch.numbered(batch.uring.next(IORING_OP_READ, pair[0]));
    entry.addr = reinterpret_cast<std::uintptr_t>(&byte);
    entry.len = 1;
    std::thread writes([&] {
        epoll_event event = {};
        send_all(batch.ends.a, "x", 1);
        must(::epoll_wait(batch.set, &event, 1, -1), "epoll_wait");
        must(static_cast<int>(::write(pair[1], "x", 1)), "write");
    });
    batch.uring.enter(3, 3);
    writes.join();
    std::printf("waited for: %d\n", byte == 'x');
    receive_all(batch.ends.b, &byte, 1);
}

} // namespace

void errors()
{
    Entered uring(8);
    const Ends ends = accelerated();
    refusals(uring, "accelerated", ends.a);
    refusals(uring, "datagrams", udp_pair().a);
    int pair[2];
    must(::pipe(pair), "pipe");
    refusals(uring, "pipe", pair[0]);
    const int file = must(::open("/proc/self/exe", O_RDONLY), "open");
    const int outer = must(::epoll_create1(0), "epoll_create1");
    const int inner = must(::epoll_create1(0), "epoll_create1");
    std::printf("a file: %s\n", name_of(changed(uring, outer, EPOLL_CTL_ADD, file)));
    std::printf("itself: %s\n", name_of(changed(uring, outer, EPOLL_CTL_ADD, outer)));
    std::printf("a set: %s\n", name_of(changed(uring, outer, EPOLL_CTL_ADD, inner)));
    std::printf("a set: %s\n", name_of(changed(uring, outer, EPOLL_CTL_ADD, inner)));
    std::printf("a circle: %s\n", name_of(changed(uring, inner, EPOLL_CTL_ADD, outer)));
}

void again()
{
    Entered uring(1);
    const int set = must(::epoll_create1(0), "epoll_create1");
    const Ends ends = accelerated();
    epoll_event event = {};
    event.events = EPOLLIN;
    const io_uring_sqe written = change(uring, set, EPOLL_CTL_ADD, ends.b, &event);
    for (int i = 0; i < 3; ++i) {
        std::printf("handed over: %s\n", name_of(uring.run()));
        const io_uring_sqe &entry = uring.again();
        std::printf("as it was: %d\n", std::memcmp(&entry, &written, sizeof entry) == 0);
    }
    uring.run();
    talk(ends, 10);
}

// Entries of both kinds in one call, in parts of what is there, and more than there are.
void batches()
{
    Entered uring(16);
    const Ends ends = accelerated();
    Batch batch = {uring, ends};
    in_parts(batch);
    chains(batch);
    waits_for_both(batch);
    talk(ends, 10);
}

} // namespace fabtest
