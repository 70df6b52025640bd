// SPDX-License-Identifier: BSD-2-Clause
// An epoll set that a child has in common with its parent: what one of them changes in it, the other hears of, also
// where the connection has become its own alone, and accelerated, meanwhile.
#include <sys/wait.h>

#include "fabtests/sockets/programs/semantics/epolling.hpp"

namespace {

using namespace fabtest;

constexpr int kLines = 200; // more than it takes until a connection is accelerated again

template <typename Act> pid_t start_child(Act act)
{
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        act();
        ::_exit(0);
    }
    return child;
}

void await_end(pid_t child)
{
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    if (status != 0)
        die("a child has ended with status %d", status);
}

template <typename Act> void in_child(Act act)
{
    await_end(start_child(act));
}

void echo_lines(int fd)
{
    for (int i = 0; i < kLines; ++i)
        send_text(fd, receive_text(fd, 5).c_str());
}

void exchange_lines(int fd)
{
    for (int i = 0; i < kLines; ++i) {
        send_text(fd, "line\n");
        receive_text(fd, 5);
    }
}

// The server's part of all that have a child for a while, and the connection to themselves afterwards.
void echo_and_send(Side &me)
{
    echo_lines(me.fd);
    send_text(me.fd, "x");
    me.step();
}

// Of those that put a second connection into the set.
void send_by_second(Side &me)
{
    const int second = me.connection();
    me.step();
    send_text(second, "x");
    me.step();
}

// The kernel says that something is to be read, whoever has it.
void show_what_came(Side &me, int set)
{
    exchange_lines(me.fd);
    await_events(me.fd, POLLIN);
    show_wait(me, "in the parent", set);
    show_wait(me, "again", set);
}

// One of two processes tells the other that it has come so far.
class Signal
{
public:
    Signal() { must(::pipe(ends_), "pipe"); }
    void give() const { must(static_cast<int>(::write(ends_[1], "x", 1)), "write"); }
    void await() const
    {
        char byte;
        must(static_cast<int>(::read(ends_[0], &byte, 1)), "read");
    }

private:
    int ends_[2] = {};
};

} // namespace

SCENARIO(shared_set_child_modifies)
{
    if (me.server)
        return echo_and_send(me);
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 1), "add");
    in_child([&] { must(control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLOUT, 2), "modify"); });
    show_what_came(me, set);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN, 3));
    show_wait(me, "modified", set);
    me.step();
}

SCENARIO(shared_set_child_deletes)
{
    if (me.server)
        return echo_and_send(me);
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 1), "add");
    in_child([&] { must(control(set, EPOLL_CTL_DEL, me.fd, 0, 0), "delete"); });
    show_what_came(me, set);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN, 3));
    me.show("delete", control(set, EPOLL_CTL_DEL, me.fd, 0, 0));
    me.show("add", control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 4));
    show_wait(me, "added", set);
    me.step();
}

SCENARIO(shared_set_child_adds)
{
    if (me.server)
        return echo_and_send(me);
    const int set = new_set();
    in_child([&] { must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 2), "add"); });
    show_what_came(me, set);
    me.show("add", control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 3));
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLOUT, 4));
    show_wait(me, "modified", set);
    me.show("delete", control(set, EPOLL_CTL_DEL, me.fd, 0, 0));
    show_wait(me, "deleted", set);
    me.step();
}

// Without a word to the library while the connection is on its way back.
SCENARIO(shared_set_child_deletes_and_adds)
{
    if (me.server)
        return echo_and_send(me);
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 1), "add");
    in_child([&] {
        must(control(set, EPOLL_CTL_DEL, me.fd, 0, 0), "delete");
        must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN | EPOLLET, 2), "add");
    });
    show_what_came(me, set);
    me.step();
}

SCENARIO(shared_set_child_arms_one_shot)
{
    if (me.server)
        return echo_and_send(me);
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN | EPOLLONESHOT, 1), "add");
    in_child([&] { must(control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLONESHOT, 2), "modify"); });
    show_what_came(me, set);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLONESHOT, 3));
    show_wait(me, "modified", set);
    show_wait(me, "again", set);
    me.step();
}

SCENARIO(shared_set_one_shot_fires_in_child)
{
    if (me.server)
        return echo_and_send(me);
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLOUT | EPOLLONESHOT, 1), "add");
    in_child([&] { show_wait(me, "in the child", set, -1); });
    show_wait(me, "in the parent", set);
    show_what_came(me, set);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLONESHOT, 3));
    show_wait(me, "modified", set);
    me.step();
}

SCENARIO(shared_set_child_arms_what_had_fired)
{
    if (me.server)
        return echo_and_send(me);
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLOUT | EPOLLONESHOT, 1), "add");
    show_wait(me, "before", set, -1);
    in_child([&] { must(control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLONESHOT, 2), "modify"); });
    show_what_came(me, set);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLOUT | EPOLLONESHOT, 3));
    show_wait(me, "modified", set);
    me.show("delete", control(set, EPOLL_CTL_DEL, me.fd, 0, 0));
    me.step();
}

// Each is told of what the other has put into the set, and has no descriptor of itself.
SCENARIO(shared_set_parent_adds_its_own)
{
    if (me.server)
        return send_by_second(me);
    const Signal added;
    const int set = new_set();
    const pid_t child = start_child([&] {
        added.await();
        show_wait(me, "in the child", set, -1);
    });
    const int second = me.connection();
    must(control(set, EPOLL_CTL_ADD, second, EPOLLIN, 5), "add");
    must(control(set, EPOLL_CTL_MOD, second, EPOLLIN | EPOLLRDHUP, 6), "modify");
    added.give();
    me.step();
    await_end(child);
    show_wait(me, "in the parent", set, -1);
    me.show("add", control(set, EPOLL_CTL_ADD, second, EPOLLIN, 7));
    me.show("delete", control(set, EPOLL_CTL_DEL, second, 0, 0));
    show_wait(me, "deleted", set);
    me.step();
}

SCENARIO(shared_set_child_adds_its_own)
{
    if (me.server)
        return send_by_second(me);
    const Signal added, seen;
    const int set = new_set();
    const pid_t child = start_child([&] {
        const int second = me.connection();
        must(control(set, EPOLL_CTL_ADD, second, EPOLLIN, 5), "add");
        added.give();
        seen.await();
        show_wait(me, "in the child", set, -1);
    });
    added.await();
    me.step();
    show_wait(me, "in the parent", set, -1);
    seen.give();
    await_end(child);
    show_wait(me, "when the child has gone", set);
    me.step();
}

SCENARIO(shared_set_of_one_shots)
{
    if (me.server)
        return send_by_second(me);
    const Signal added;
    const int set = new_set();
    const pid_t child = start_child([&] {
        added.await();
        show_wait(me, "in the child", set, -1);
        show_wait(me, "again", set);
    });
    const int second = me.connection();
    must(control(set, EPOLL_CTL_ADD, second, EPOLLIN | EPOLLONESHOT, 5), "add");
    added.give();
    me.step();
    await_end(child);
    show_wait(me, "in the parent", set);
    me.show("modify", control(set, EPOLL_CTL_MOD, second, EPOLLIN | EPOLLONESHOT, 6));
    show_wait(me, "modified", set, -1);
    show_wait(me, "again", set);
    me.step();
}

// The set inside is the parent's alone.
SCENARIO(shared_set_around_another)
{
    if (me.server) {
        const int second = me.connection(), third = me.connection();
        me.step();
        send_text(second, "x");
        send_text(third, "x");
        me.step();
        return;
    }
    const Signal added;
    const int outer = new_set();
    const pid_t child = start_child([&] {
        added.await();
        show_wait(me, "in the child", outer, -1);
    });
    const int second = me.connection(), third = me.connection();
    const int inner = new_set();
    must(control(inner, EPOLL_CTL_ADD, second, EPOLLIN, 1), "add");
    must(control(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2), "add");
    must(control(inner, EPOLL_CTL_ADD, third, EPOLLIN, 3), "add");
    added.give();
    me.step();
    await_end(child);
    await_events(second, POLLIN);
    await_events(third, POLLIN);
    show_wait(me, "outer", outer, -1);
    show_wait(me, "inner", inner, -1);
    me.step();
}

// To a process that has neither a copy of it nor the connections.
SCENARIO(shared_set_passed_on)
{
    if (me.server) {
        const int second = me.connection(), third = me.connection();
        me.step();
        send_text(second, "x");
        me.step();
        send_text(third, "x");
        me.step();
        return;
    }
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
    const pid_t child = start_child([&] { show_wait(me, "in the child", take_descriptor(ends[1]), -1); });
    const int second = me.connection(), third = me.connection();
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, second, EPOLLIN | EPOLLONESHOT, 1), "add");
    give_descriptor(ends[0], set);
    must(control(set, EPOLL_CTL_ADD, third, EPOLLIN, 2), "add");
    me.step();
    await_end(child);
    me.show("modify", control(set, EPOLL_CTL_MOD, second, EPOLLIN | EPOLLONESHOT, 3));
    show_wait(me, "in the parent", set, -1);
    me.step();
    show_wait(me, "the other", set, -1);
    me.step();
}

// What was deleted before is in it for nobody.
SCENARIO(shared_set_passed_on_without_one)
{
    if (me.server) {
        const int second = me.connection();
        me.step();
        ::close(second);
        me.step();
        return;
    }
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
    const Signal ended;
    const pid_t child = start_child([&] {
        const int set = take_descriptor(ends[1]);
        ended.await();
        show_wait(me, "in the child", set);
    });
    const int second = me.connection();
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, second, EPOLLIN, 1), "add");
    must(control(set, EPOLL_CTL_DEL, second, 0, 0), "delete");
    give_descriptor(ends[0], set);
    me.step();
    await_events(second, POLLRDHUP);
    ended.give();
    await_end(child);
    show_wait(me, "in the parent", set);
    me.step();
}

// Which would have it.
SCENARIO(shared_set_no_other_program_comes)
{
    if (me.server)
        return echo_and_send(me);
    const int set = must(::epoll_create1(0), "epoll_create1");
    must(::fcntl(me.fd, F_SETFD, FD_CLOEXEC), "fcntl");
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 1), "add");
    me.show("exec", ::execl("/none", "none", nullptr));
    show_what_came(me, set);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLOUT, 2));
    show_wait(me, "modified", set);
    me.step();
}

// Nor has a child it alone whose parent has passed it on.
SCENARIO(shared_set_passed_on_by_the_parent)
{
    if (me.server) {
        const int second = me.connection();
        echo_lines(second);
        send_text(second, "x");
        me.step();
        return;
    }
    const int set = new_set();
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
    const Signal passed, seen;
    const int second = me.connection();
    const pid_t child = start_child([&] {
        passed.await();
        must(control(set, EPOLL_CTL_ADD, second, EPOLLIN, 7), "add");
        exchange_lines(second);
        seen.await();
    });
    ::close(second);
    give_descriptor(ends[0], set);
    passed.give();
    show_wait(me, "in the parent", set, -1);
    seen.give();
    await_end(child);
    me.step();
}

// One that is closed in the child, or that another program has not got, is its parent's alone.
SCENARIO(shared_set_child_closes)
{
    if (me.server) {
        echo_lines(me.fd);
        me.step();
        send_text(me.fd, "x");
        me.step();
        return;
    }
    const Signal closed, done;
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 1), "add");
    const pid_t child = start_child([&] {
        must(control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN, 2), "modify");
        ::close(me.fd);
        ::close(set);
        closed.give();
        done.await();
    });
    closed.await();
    exchange_lines(me.fd);
    me.step();
    show_wait(me, "in the parent", set, -1);
    done.give();
    await_end(child);
    me.step();
}
