// SPDX-License-Identifier: BSD-2-Clause
// Programs with liburing's shared library, for test_liburing.py. Each prints what it was told, which is the same over
// the kernel; which sockets stayed accelerated is in the log. All ends are in this process.
//   liburings there       whether there is io_uring
//   liburings by HOW      one connection is written to by an io_uring whose entries HOW hands over; others are not
//   liburings takes WHAT  one connection is used as WHAT says, between calls
//   liburings waits       for ever, while others talk, and until a signal comes
//   liburings timed       waits that end without a completion
//   liburings batches     changes of an epoll set among other entries
//   liburings again       one after another is made and closed, and their numbers are given out again
//   liburings threads HOW some threads hand over entries to one io_uring
//   liburings comes       another thread sets up and closes some
//   liburings probe, liburings sqpoll, liburings mapped, liburings place, liburings fork
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "fabtests/posix/programs/liburing/ring.hpp"
#include "fabtests/sockets/programs/ends.hpp"

using namespace fabtest;

namespace {

std::string received(int fd, std::size_t length)
{
    std::string text(length, 0);
    receive_all(fd, text.data(), length);
    return text;
}

// ---- each way to hand over

int by_timeout(Liburing &uring, bool timed)
{
    __kernel_timespec most = {30, 0};
    io_uring_cqe *done = nullptr;
    const int taken = ::io_uring_submit_and_wait_timeout(&uring.its, &done, 1, timed ? &most : nullptr, nullptr);
    std::printf("there is one: %d\n", done != nullptr);
    return taken;
}

int by_get_cqe(Liburing &uring)
{
    io_uring_cqe *done = nullptr;
    const int taken = ::__io_uring_get_cqe(&uring.its, &done, uring.publish(), 1, nullptr);
    std::printf("there is one: %d\n", done != nullptr);
    return taken;
}

int hand_over(Liburing &uring, const std::string &how)
{
    if (how == "wait")
        return ::io_uring_submit_and_wait(&uring.its, 1);
    if (how == "events")
        return ::io_uring_submit_and_get_events(&uring.its);
    if (how == "timeout" || how == "untimed")
        return by_timeout(uring, how == "timeout");
    if (how == "cqe")
        return by_get_cqe(uring);
    if (how == "enter")
        return ::io_uring_enter(static_cast<unsigned>(uring.its.ring_fd), uring.publish(), 1, IORING_ENTER_GETEVENTS,
                                nullptr);
    if (how == "enter2")
        return ::io_uring_enter2(static_cast<unsigned>(uring.its.ring_fd), uring.publish(), 0, 0, nullptr, 0);
    if (how == "place")
        std::printf("a place: %d\n", ::io_uring_register_ring_fd(&uring.its));
    return ::io_uring_submit(&uring.its);
}

void by(const std::string &how)
{
    const Ends earlier = accelerated();
    Liburing uring(8);
    const Ends taken = accelerated();
    send_all(taken.a, "first.", 6);
    ::io_uring_prep_send(uring.next(), taken.a, "second", 6, 0);
    std::printf("handed over: %d\n", hand_over(uring, how));
    std::printf("result: %d\n", uring.result());
    std::printf("received: %s\n", received(taken.b, 12).c_str());
    talk(taken, 50);
    talk(earlier, 50);
    ::io_uring_prep_nop(uring.next());
    std::printf("handed over: %d\n", hand_over(uring, how));
    std::printf("result: %d\n", uring.result());
    std::printf("nothing: %d\n", ::io_uring_submit(&uring.its));
}

// ---- what is done with it

void print_results(Liburing &uring, unsigned count)
{
    std::printf("handed over: %d\n", ::io_uring_submit(&uring.its));
    for (unsigned i = 0; i < count; ++i)
        std::printf("result: %d\n", uring.result());
}

// A time that doesn't come belongs to it.
void receive_in_time(Liburing &uring, int fd, char *text)
{
    static __kernel_timespec most = {30, 0};
    io_uring_sqe *const entry = uring.next();
    ::io_uring_prep_recv(entry, fd, text, 6, 0);
    entry->flags |= IOSQE_IO_LINK;
    ::io_uring_prep_link_timeout(uring.next(), &most, 0);
    std::printf("handed over: %d\n", ::io_uring_submit(&uring.its));
    std::printf("results: %d\n", uring.result() + uring.result()); // in either order
}

// The second is looked up when the first has come to its end.
void send_after_another(Liburing &uring, int fd)
{
    io_uring_sqe *const entry = uring.next();
    ::io_uring_prep_nop(entry);
    entry->flags |= IOSQE_IO_LINK;
    ::io_uring_prep_send(uring.next(), fd, "second", 6, 0);
    print_results(uring, 2);
}

// As often as something comes, into buffers that are the kernel's to choose.
void receive_many(Liburing &uring, const Ends &ends)
{
    static char buffers[4][8];
    ::io_uring_prep_provide_buffers(uring.next(), buffers, 8, 4, 7, 0);
    print_results(uring, 1);
    io_uring_sqe *const entry = uring.next();
    ::io_uring_prep_recv_multishot(entry, ends.b, nullptr, 0, 0);
    entry->flags |= IOSQE_BUFFER_SELECT;
    entry->buf_group = 7;
    print_results(uring, 1); // the second of what was sent
    for (const char *const text : {"third", "4th"}) {
        send_all(ends.a, text, std::strlen(text));
        io_uring_cqe *done = nullptr;
        while (::io_uring_wait_cqe(&uring.its, &done) == -EINTR)
            ;
        std::printf("result: %d, more: %d, %.*s\n", done->res, (done->flags & IORING_CQE_F_MORE) != 0, done->res,
                    buffers[done->flags >> IORING_CQE_BUFFER_SHIFT]);
        ::io_uring_cqe_seen(&uring.its, done);
    }
    ::io_uring_prep_cancel_fd(uring.next(), ends.b, 0);
    print_results(uring, 2);
}

void send_by_registered(Liburing &uring, const std::string &what, int fd)
{
    const int three[] = {-1, fd, -1};
    const __u64 tags[3] = {};
    if (what == "files")
        std::printf("files: %d\n", ::io_uring_register_files(&uring.its, three, 3));
    else if (what == "tags")
        std::printf("tags: %d\n", ::io_uring_register_files_tags(&uring.its, three, tags, 3));
    else
        std::printf("sparse: %d\n", ::io_uring_register_files_sparse(&uring.its, 3));
    if (what == "update")
        std::printf("update: %d\n", ::io_uring_register_files_update(&uring.its, 1, &fd, 1));
    if (what == "update_tag")
        std::printf("update: %d\n", ::io_uring_register_files_update_tag(&uring.its, 1, &fd, tags, 1));
    if (what == "register") {
        io_uring_files_update update = {};
        update.offset = 1;
        update.fds = reinterpret_cast<std::uintptr_t>(&fd);
        std::printf("update: %d\n", ::io_uring_register(static_cast<unsigned>(uring.its.ring_fd),
                                                        IORING_REGISTER_FILES_UPDATE, &update, 1));
    }
    io_uring_sqe *const entry = uring.next();
    ::io_uring_prep_send(entry, 1, "second", 6, 0);
    entry->flags |= IOSQE_FIXED_FILE;
    print_results(uring, 1);
}

void takes(const std::string &what)
{
    Liburing uring(8);
    const Ends other = accelerated();
    const Ends taken = accelerated();
    char text[8] = {};
    send_all(taken.a, "first.", 6);
    if (what == "recv" || what == "in_time" || what == "many" || what == "poll") {
        send_all(taken.a, "second", 6);
        std::printf("before: %s\n", received(taken.b, 6).c_str());
    }
    if (what == "recv") {
        ::io_uring_prep_recv(uring.next(), taken.b, text, 6, 0);
        print_results(uring, 1);
    } else if (what == "in_time") {
        receive_in_time(uring, taken.b, text);
    } else if (what == "many") {
        receive_many(uring, taken);
    } else if (what == "poll") {
        ::io_uring_prep_poll_add(uring.next(), taken.b, POLLIN);
        print_results(uring, 1);
        receive_all(taken.b, text, 6);
    } else {
        what == "after" ? send_after_another(uring, taken.a) : send_by_registered(uring, what, taken.a);
        std::printf("received: %s\n", received(taken.b, 12).c_str());
    }
    std::printf("in between: %s\n", text);
    talk(taken, 50);
    talk(other, 50);
}

// ---- waits

// The main thread waits, while another one talks and then lets it end.
void waits()
{
    Liburing uring(8);
    const Ends ends = accelerated();
    int pair[2];
    must(::pipe(pair), "pipe");
    char byte = 0;
    ::io_uring_prep_read(uring.next(), pair[0], &byte, 1, 0);
    std::thread other([&] {
        talk(ends, 200);
        must(static_cast<int>(::write(pair[1], "x", 1)), "write");
    });
    int taken = ::io_uring_submit_and_wait(&uring.its, 1);
    std::printf("handed over: %d\n", taken);
    std::printf("result: %d, %c\n", uring.result(), byte);
    other.join();
    struct sigaction action = {};
    action.sa_handler = [](int) {};
    must(::sigaction(SIGALRM, &action, nullptr), "sigaction");
    const itimerval never = {};
    const itimerval often = {{0, 20000}, {0, 20000}};
    must(::setitimer(ITIMER_REAL, &often, nullptr), "setitimer");
    for (const bool has_entry : {false, true}) {
        if (has_entry)
            ::io_uring_prep_read(uring.next(), pair[0], &byte, 1, 0);
        taken = ::io_uring_submit_and_wait(&uring.its, 1);
        std::printf("a signal came: %d, %s\n", taken, name_of(taken));
        io_uring_cqe *done = nullptr;
        if (has_entry)
            ::io_uring_prep_read(uring.next(), pair[0], &byte, 1, 0);
        taken = ::io_uring_submit_and_wait_timeout(&uring.its, &done, 1, nullptr, nullptr);
        std::printf("two came: %d, %s, %d\n", taken, name_of(taken), done != nullptr);
    }
    must(::setitimer(ITIMER_REAL, &never, nullptr), "setitimer");
    must(static_cast<int>(::write(pair[1], "yy", 2)), "write");
    std::printf("results: %d, %c\n", uring.result() + uring.result(), byte);
    talk(ends, 50);
}

void timed()
{
    Liburing uring(8);
    const Ends ends = accelerated();
    int pair[2];
    must(::pipe(pair), "pipe");
    char byte = 0;
    __kernel_timespec soon = {0, 20000000};
    io_uring_cqe *done = nullptr;
    ::io_uring_prep_read(uring.next(), pair[0], &byte, 1, 0);
    std::printf("with an entry: %d", ::io_uring_submit_and_wait_timeout(&uring.its, &done, 1, &soon, nullptr));
    std::printf(", %d\n", done != nullptr);
    std::printf("without: %s\n", name_of(::io_uring_submit_and_wait_timeout(&uring.its, &done, 1, &soon, nullptr)));
    std::printf("one: %s\n", name_of(::io_uring_wait_cqe_timeout(&uring.its, &done, &soon)));
    ::io_uring_prep_nop(uring.next());
    std::printf("not handed over: %s\n", name_of(::io_uring_wait_cqes(&uring.its, &done, 1, &soon, nullptr)));
    must(static_cast<int>(::write(pair[1], "x", 1)), "write");
    soon.tv_sec = 30;
    std::printf("both: %d\n", ::io_uring_submit_and_wait_timeout(&uring.its, &done, 2, &soon, nullptr));
    std::printf("results: %d\n", uring.result() + uring.result());
    talk(ends, 50);
}

// ---- epoll sets

void batches()
{
    Liburing uring(8);
    const Ends ends = accelerated();
    const int set = must(::epoll_create1(0), "epoll_create1");
    epoll_event event = {};
    event.events = EPOLLIN;
    ::io_uring_prep_nop(uring.next());
    ::io_uring_prep_epoll_ctl(uring.next(), set, ends.b, EPOLL_CTL_ADD, &event);
    ::io_uring_prep_epoll_ctl(uring.next(), set, ends.b, EPOLL_CTL_ADD, &event);
    ::io_uring_prep_nop(uring.next());
    std::printf("handed over: %d\n", ::io_uring_submit_and_wait(&uring.its, 4));
    for (int i = 0; i < 4; ++i)
        std::printf("result: %s\n", name_of(uring.result()));
    send_all(ends.a, "x", 1);
    std::printf("told: %d\n", must(::epoll_wait(set, &event, 1, -1), "epoll_wait"));
    received(ends.b, 1);
    __kernel_timespec most = {30, 0};
    io_uring_cqe *done = nullptr;
    ::io_uring_prep_epoll_ctl(uring.next(), set, ends.b, EPOLL_CTL_DEL, nullptr);
    std::printf("handed over: %d\n", ::io_uring_submit_and_wait_timeout(&uring.its, &done, 1, &most, nullptr));
    std::printf("result: %s\n", name_of(uring.result()));
    send_all(ends.a, "x", 1);
    std::printf("told: %d\n", must(::epoll_wait(set, &event, 1, 0), "epoll_wait"));
    received(ends.b, 1);
    talk(ends, 50);
}

// ---- many of them

void again()
{
    const Ends ends = accelerated();
    for (int i = 0; i < 300; ++i) {
        Liburing uring(4);
        ::io_uring_prep_nop(uring.next());
        print_results(uring, 1);
    }
    const Ends later = accelerated(); // with the numbers that they had
    talk(ends, 50);
    talk(later, 50);
}

// By a call that the queue's lock is held for, or by one of each thread's alone, which may hand over another one's.
void threads(const std::string &how)
{
    Liburing uring(64);
    std::mutex lock;
    const auto hand_over_one = [&](int to) {
        std::unique_lock<std::mutex> guard(lock);
        io_uring_sqe *const entry = uring.next();
        ::io_uring_prep_write(entry, to, "x", 1, 0);
        entry->flags |= IOSQE_CQE_SKIP_SUCCESS;
        if (how == "submit")
            return ::io_uring_submit(&uring.its);
        uring.publish();
        guard.unlock();
        return ::io_uring_enter(static_cast<unsigned>(uring.its.ring_fd), 1, 0, 0, nullptr);
    };
    const auto work = [&] {
        const Ends ends = accelerated();
        int pair[2];
        char byte = 0;
        must(::pipe(pair), "pipe");
        for (unsigned round = 0; round < 300; ++round) {
            if (hand_over_one(pair[1]) != 1)
                die("not one");
            must(static_cast<int>(::read(pair[0], &byte, 1)), "read");
            exchange(ends.a, ends.b, round);
        }
    };
    std::deque<std::thread> all;
    for (int i = 0; i < 3; ++i)
        all.emplace_back(work);
    for (std::thread &thread : all)
        thread.join();
    std::printf("failed: %u\n", ::io_uring_cq_ready(&uring.its));
}

// Connections are accelerated while they come and go.
void comes_and_goes()
{
    std::atomic<bool> over{false};
    std::thread other([&] {
        while (!over)
            const Liburing uring(4);
    });
    for (int i = 0; i < 8; ++i)
        talk(accelerated(), 20);
    over = true;
    other.join();
}

// ---- what the library can't read, and what is not to be mistaken for that

void talk_around(void (*between)(const Ends &ends))
{
    const Ends ends = accelerated();
    between(ends);
    talk(ends, 50);
    talk(connected(), 200);
}

void probe(const Ends &)
{
    io_uring_probe *const found = ::io_uring_get_probe();
    std::printf("a NOP: %d\n", ::io_uring_opcode_supported(found, IORING_OP_NOP));
    ::io_uring_free_probe(found);
}

void by_sqpoll(const Ends &)
{
    Liburing uring(8, IORING_SETUP_SQPOLL);
    ::io_uring_prep_nop(uring.next());
    print_results(uring, 1);
}

// liburing doesn't know what this one's kernel can do, and a wait hands over.
void mapped_by_hand(const Ends &ends)
{
    io_uring_params made = {};
    io_uring mapped = {};
    const int fd = must(::io_uring_setup(8, &made), "io_uring_setup");
    std::printf("mapped: %d\n", ::io_uring_queue_mmap(fd, &made, &mapped));
    for (unsigned i = 0; i < made.sq_entries; ++i)
        mapped.sq.array[i] = i;
    send_all(ends.a, "first.", 6);
    ::io_uring_prep_send(::io_uring_get_sqe(&mapped), ends.a, "second", 6, 0);
    __kernel_timespec most = {30, 0};
    io_uring_cqe *done = nullptr;
    std::printf("waited: %d", ::io_uring_wait_cqes(&mapped, &done, 1, &most, nullptr));
    std::printf(", received: %s\n", received(ends.b, 12).c_str());
    ::io_uring_queue_exit(&mapped);
}

// Its place is another number.
void by_place(const Ends &ends)
{
    Liburing uring(8);
    std::printf("a place: %d\n", ::io_uring_register_ring_fd(&uring.its));
    send_all(ends.a, "first.", 6);
    ::io_uring_prep_send(uring.next(), ends.a, "second", 6, 0);
    const unsigned count = uring.publish();
    std::printf("handed over: %d\n", ::io_uring_enter(static_cast<unsigned>(uring.its.enter_ring_fd), count, 1,
                                                      IORING_ENTER_GETEVENTS | IORING_ENTER_REGISTERED_RING, nullptr));
    std::printf("received: %s\n", received(ends.b, 12).c_str());
}

void in_a_child(const Ends &ends)
{
    Liburing uring(8);
    const pid_t child = must(::fork(), "fork");
    ::io_uring_prep_nop(uring.next());
    if (child == 0) {
        ::io_uring_submit(&uring.its);
        ::_exit(0);
    }
    int status = 0;
    must(::waitpid(child, &status, 0), "waitpid");
    std::printf("child %d, then %s\n", status, name_of(uring.result()));
    talk(ends, 10);
}

struct Command {
    const char *name;
    void (*run)(const char *argument);
};

const Command kCommands[] = {
    {"there", [](const char *) { const Liburing uring(8); }},
    {"by", [](const char *how) { by(how); }},
    {"takes", [](const char *what) { takes(what); }},
    {"waits", [](const char *) { waits(); }},
    {"timed", [](const char *) { timed(); }},
    {"batches", [](const char *) { batches(); }},
    {"again", [](const char *) { again(); }},
    {"threads", [](const char *how) { threads(how); }},
    {"comes", [](const char *) { comes_and_goes(); }},
    {"probe", [](const char *) { talk_around(probe); }},
    {"sqpoll", [](const char *) { talk_around(by_sqpoll); }},
    {"mapped", [](const char *) { talk_around(mapped_by_hand); }},
    {"place", [](const char *) { talk_around(by_place); }},
    {"fork", [](const char *) { talk_around(in_a_child); }},
};

} // namespace

int main(int argc, char **argv)
{
    for (const Command &command : kCommands)
        if (argc > 1 && command.name == std::string(argv[1])) {
            command.run(argc > 2 ? argv[2] : "");
            return 0;
        }
    die("no such command");
}
