// SPDX-License-Identifier: BSD-2-Clause
// Threads with tables of descriptors of their own, where the same numbers are other files: connections that were made
// before, epoll sets of each. Others of the process wait meanwhile, by the table that they have in common.
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <barrier>
#include <cstdio>
#include <thread>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/semantics/epolling.hpp"

#include <linux/close_range.h>

namespace {

using namespace fabtest;

constexpr int kThreads = 3;
constexpr int kRounds = 40;
constexpr int kWaiting = 3;
constexpr std::size_t kLength = 8; // of each message
// What each has under a number of its own.
constexpr int kConnection = 300;
constexpr int kSet = 301;
constexpr unsigned kBehind = 900; // no number of the program's is so high

struct Message {
    char text[kLength + 1];
};

Message message(int connection, int round)
{
    Message made{};
    std::snprintf(made.text, sizeof made.text, "%d of %03d", connection, round);
    return made;
}

// One thread's connection: `part` gives the thread its table.
struct Own {
    int fd;
    int index;
    void (*part)();
    std::barrier<> *all_have; // their numbers
    int right = 0;
    int own_data = 0;
};

void answer(Own &own)
{
    for (int round = 0; round < kRounds; ++round) {
        epoll_event event{};
        if (must(::epoll_wait(kSet, &event, 1, static_cast<int>(patience::milliseconds())), "epoll_wait") != 1)
            die("thread %d hears nothing in round %d", own.index, round);
        own.own_data += event.data.u64 == 1000U + static_cast<unsigned>(own.index) ? 1 : 0;
        Message got{};
        receive_all(kConnection, got.text, kLength);
        own.right += std::strcmp(got.text, message(own.index, round).text) == 0 ? 1 : 0;
        send_all(kConnection, got.text, kLength);
    }
}

int use_own_table(void *argument)
{
    Own &own = *static_cast<Own *>(argument);
    own.part();
    must(::dup2(own.fd, kConnection), "dup2");
    const int set = new_set();
    must(::dup2(set, kSet), "dup2");
    must(::close(set), "close");
    must(control(kSet, EPOLL_CTL_ADD, kConnection, EPOLLIN, 1000U + static_cast<unsigned>(own.index)), "add");
    own.all_have->arrive_and_wait();
    answer(own);
    must(::close(kConnection), "close");
    must(::close(kSet), "close");
    return 0;
}

// A thread of the common table that waits when the tables come apart, and is told something after.
struct Waiting {
    int fd;
    void (*wait)(int fd);
    std::atomic<pid_t> task{0};
    std::string heard;

    void run()
    {
        task = static_cast<pid_t>(::syscall(SYS_gettid));
        wait(fd);
        heard = receive_text(fd, kLength);
    }
};

void wait_in_receive(int) {}

void wait_in_set(int fd)
{
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, fd, EPOLLIN, kConnection), "add");
    epoll_event event{};
    if (must(::epoll_wait(set, &event, 1, -1), "epoll_wait") != 1 || event.data.u64 != kConnection)
        die("an event of other data: %llu", static_cast<unsigned long long>(event.data.u64));
    must(::close(set), "close");
}

void wait_in_poll(int fd)
{
    pollfd p{fd, POLLIN, 0};
    must(::poll(&p, 1, -1), "poll");
}

void server_side(Side &me, const int (&own)[kThreads], const int (&waiting)[kWaiting])
{
    me.step();
    for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < kThreads; ++i)
            send_all(own[i], message(i, round).text, kLength);
        for (int i = 0; i < kThreads; ++i)
            if (receive_text(own[i], kLength) != message(i, round).text)
                die("round %d of connection %d came back as another", round, i);
    }
    me.step();
    for (const int fd : waiting)
        send_text(fd, "to wait.");
    me.step();
}

// The calling thread's table has something else under this number.
void read_a_pipe(const Side &me, int number)
{
    int ends[2];
    must(::pipe(ends), "pipe");
    must(::dup2(ends[0], number), "dup2");
    must(static_cast<int>(::write(ends[1], "pipe", 4)), "write");
    char text[8] = {};
    me.show("read of a pipe", ::read(number, text, sizeof text));
    me.say("it was: %s", text);
    must(::close(number), "close");
}

void own_tables(Side &me, void (*part)(), void (*begin)(Own &own))
{
    int own_fds[kThreads];
    int waiting_fds[kWaiting] = {me.fd};
    for (int &fd : own_fds)
        fd = me.connection();
    for (int i = 1; i < kWaiting; ++i)
        waiting_fds[i] = me.connection();
    if (me.server)
        return server_side(me, own_fds, waiting_fds);

    constexpr decltype(Waiting::wait) kWays[kWaiting] = {wait_in_receive, wait_in_set, wait_in_poll};
    Waiting waiting[kWaiting];
    std::vector<std::thread> threads;
    for (int i = 0; i < kWaiting; ++i) {
        waiting[i].fd = waiting_fds[i];
        waiting[i].wait = kWays[i];
        threads.emplace_back(&Waiting::run, &waiting[i]);
        while (waiting[i].task == 0)
            std::this_thread::yield();
        await_waiting(waiting[i].task);
    }
    std::barrier all_have(kThreads + 1);
    Own own[kThreads];
    for (int i = 0; i < kThreads; ++i) {
        own[i] = {own_fds[i], i, part, &all_have};
        threads.emplace_back(begin, std::ref(own[i]));
    }
    all_have.arrive_and_wait();
    read_a_pipe(me, kConnection);
    me.step();
    for (int i = 0; i < kThreads; ++i)
        threads[static_cast<std::size_t>(kWaiting + i)].join();
    for (const Own &one : own)
        me.say("thread %d: %d right, %d of its data", one.index, one.right, one.own_data);
    me.step();
    me.step();
    for (int i = 0; i < kWaiting; ++i) {
        threads[static_cast<std::size_t>(i)].join();
        me.say("waiting thread %d has heard: %s", i, waiting[i].heard.c_str());
    }
}

void by_a_thread(Own &own)
{
    use_own_table(&own);
}

// A process that shares the memory, and has a copy of the table. Its thread's locals are its parent's, who waits.
void by_a_process(Own &own)
{
    constexpr std::size_t kStack = 256 << 10;
    std::vector<char> stack(kStack);
    const pid_t child = must(::clone(use_own_table, stack.data() + kStack - 16, CLONE_VM | SIGCHLD, &own), "clone");
    int status = 0;
    must(::waitpid(child, &status, __WALL), "waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        die("the process ended with %#x", static_cast<unsigned>(status));
}

} // namespace

SCENARIO(own_tables_by_unshare)
{
    own_tables(
        me, [] { must(::unshare(CLONE_FILES), "unshare"); }, by_a_thread);
}

SCENARIO(own_tables_by_number)
{
    own_tables(
        me, [] { must(static_cast<int>(::syscall(SYS_unshare, CLONE_FILES)), "unshare"); }, by_a_thread);
}

SCENARIO(own_tables_by_close_range)
{
    own_tables(
        me, [] { must(::close_range(kBehind, ~0U, CLOSE_RANGE_UNSHARE), "close_range"); }, by_a_thread);
}

SCENARIO(own_tables_by_clone)
{
    own_tables(
        me, [] {}, by_a_process);
}

// What the peer had ended, and nobody has read when the tables come apart: it is read by who has the connection.
SCENARIO(own_table_and_unread_bytes)
{
    if (me.server) {
        send_text(me.fd, "never read till now");
        me.show("shutdown", ::shutdown(me.fd, SHUT_WR));
        me.step();
        me.step();
        return;
    }
    me.step();
    await_readable(me.fd, 19);
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 7), "add");
    std::thread([&me] {
        must(::unshare(CLONE_FILES), "unshare");
        read_a_pipe(me, me.fd);
    }).join();
    show_wait(me, "the set", set);
    const int copy = must(::dup(me.fd), "dup");
    me.say("by a copy: %s", receive_text(copy, 11).c_str());
    show_wait(me, "the set", set);
    await_events(me.fd, POLLIN);
    me.say("the rest: %s", receive_text(me.fd, 8).c_str());
    char byte;
    me.show("the end", ::recv(me.fd, &byte, 1, 0));
    me.show("the end of the copy", ::recv(copy, &byte, 1, 0));
    me.step();
}
