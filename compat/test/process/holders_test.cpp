// SPDX-License-Identifier: BSD-2-Clause
// Which processes hold a socket, when they are copied and end in any order: nobody who is left alone has been told so
// too early, as what another one then sends is not counted, and bytes come in a wrong order.
#include "fabtests/unit.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <initializer_list>
#include <memory>
#include <vector>

#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/sharing/family.hpp"
#include "compat/src/sharing/holders.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint32_t kProcesses = 8;
constexpr std::uint32_t kCells = 64;

// A copy of this process that does nothing before it is told to. No handlers of fork() run: what they do is done here,
// one by one.
class Child
{
public:
    Child()
    {
        assert_int_equal(::pipe(to_), 0);
        assert_int_equal(::pipe(from_), 0);
        pid = begin_fork();
        assert_true(pid >= 0);
        if (pid == 0)
            live();
    }

    // It comes to run for the first time.
    void run() const { tell('r'); }
    // It closes its copy.
    void close(const sock::Stream &s) const
    {
        index_ = s.index;
        tell('c');
    }
    // It makes a child, and ends; the child lives until it is told to end.
    void fork() const { tell('f'); }
    // It becomes another program, which lives on.
    void exec() const { tell('x'); }
    // It tries to, in vain.
    void fail_to_exec() const { tell('n'); }
    void end_unseen() const { assert_int_equal(libc::real.write(to_[1], "e", 1), 1); }
    void end() const
    {
        int status = -1;
        assert_int_equal(libc::real.write(to_[1], "e", 1), 1);
        assert_int_equal(::waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        for (const int fd : {to_[0], to_[1], from_[0], from_[1]})
            ::close(fd);
    }

    pid_t pid;

private:
    void tell(char what) const
    {
        char byte = 0;
        const std::uint32_t index = index_;
        assert_int_equal(libc::real.write(to_[1], &what, 1), 1);
        if (what == 'c')
            assert_int_equal(libc::real.write(to_[1], &index, sizeof index), static_cast<int>(sizeof index));
        assert_int_equal(libc::real.read(from_[0], &byte, 1), 1);
        assert_int_equal(byte, what);
    }

    void close_one() const
    {
        std::uint32_t index = 0;
        if (libc::real.read(to_[0], &index, sizeof index) == static_cast<ssize_t>(sizeof index))
            sock::leave_holders(*sock::socket_by_index(index));
    }

    // The new program has the pipe alone, and answers when it runs.
    void become_another() const
    {
        sock::holders_before_exec();
        char command[96];
        std::snprintf(command, sizeof command, "printf x >/proc/self/fd/%d; read -r line </proc/self/fd/%d", from_[1],
                      to_[0]);
        libc::real.execve(
            "/bin/sh",
            const_cast<char *const *>(std::initializer_list<const char *>{"sh", "-c", command, nullptr}.begin()),
            environ);
        libc::real.syscall(SYS_exit_group, 2);
    }

    void copy() const
    {
        const pid_t made = begin_fork();
        if (made != 0) {
            sock::holders_after_fork(made);
            libc::real.syscall(SYS_exit_group, 0);
        }
        sock::holders_after_fork_in_child();
    }

    static pid_t begin_fork()
    {
        sock::g_offload.lock.lock();
        sock::lock_pool_for_fork();
        sock::holders_before_fork();
        sock::unlock_pool_after_fork();
        sock::g_offload.lock.unlock();
        return static_cast<pid_t>(libc::real.syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    }

    void obey(char what) const
    {
        switch (what) {
        case 'r':
            return sock::holders_after_fork_in_child();
        case 'c':
            return close_one();
        case 'f':
            return copy();
        case 'x':
            return become_another();
        case 'n':
            sock::holders_before_exec();
            return sock::holders_after_exec();
        default:
            libc::real.syscall(SYS_exit_group, what == 'e' ? 0 : 1);
        }
    }

    [[noreturn]] void live() const
    {
        libc::real.close(to_[1]); // it ends with a test that fails
        libc::real.close(from_[0]);
        for (;;) {
            char what = 0;
            if (libc::real.read(to_[0], &what, 1) != 1)
                what = 0;
            obey(what);
            if (libc::real.write(from_[1], &what, 1) != 1)
                obey(0);
        }
    }

    int to_[2];
    int from_[2];
    mutable std::uint32_t index_ = 0;
};

void told(const Child &child)
{
    sock::holders_after_fork(child.pid);
}

bool is_alone(sock::Stream &s)
{
    sock::LockGuard guard(sock::g_offload.lock);
    return sock::hold_alone(s);
}

void children_end_in_any_order(void **)
{
    for (const bool told_first : {false, true}) {
        const Pair pair;
        sock::Stream &s = *pair.a.s;
        const Child child;
        assert_false(is_alone(s));
        if (told_first)
            told(child);
        assert_false(is_alone(s));
        child.run();
        if (!told_first)
            told(child);
        assert_false(is_alone(s));
        child.end();
        assert_true(is_alone(s));
    }
}

// The parent knows the first child and makes a second one before the first has come to run.
void a_late_child_takes_nobody_elses_place(void **)
{
    const Pair pair;
    sock::Stream &s = *pair.a.s;
    const Child first;
    told(first);
    const Child second;
    first.run();
    first.end();
    second.run();
    told(second);
    assert_false(is_alone(s));
    second.end();
    assert_true(is_alone(s));
}

// A server that makes a process for each connection closes its own copy; the child closes those of the others.
void who_closes_its_copy_holds_nothing(void **)
{
    const Pair pair;
    sock::Stream &a = *pair.a.s;
    sock::Stream &b = *pair.b.s;
    const Child child;
    child.run();
    told(child);
    child.close(a);
    assert_true(is_alone(a));
    assert_false(is_alone(b));
    child.end();
    assert_true(is_alone(b));
}

void a_grandchild_holds_it_too(void **)
{
    const Pair pair;
    sock::Stream &s = *pair.a.s;
    const Child child;
    child.run();
    told(child);
    child.fork();
    int status = -1;
    assert_int_equal(::waitpid(child.pid, &status, 0), child.pid);
    assert_false(is_alone(s));
    child.close(s); // the grandchild listens where the child did
    assert_true(is_alone(s));
    child.close(*pair.b.s);
    child.end_unseen();
}

void a_process_that_becomes_another_program_holds_nothing(void **)
{
    const Pair pair;
    sock::Stream &s = *pair.a.s;
    const Child child;
    child.run();
    told(child);
    child.fail_to_exec();
    assert_false(is_alone(s));
    child.exec(); // its pipes are not close-on-exec, the sockets are
    assert_true(is_alone(s));
    ::kill(child.pid, SIGKILL);
    int status = -1;
    assert_int_equal(::waitpid(child.pid, &status, 0), child.pid);
}

void what_survives_an_exec_is_never_alone(void **)
{
    const Pair pair;
    sock::Stream &s = *pair.a.s;
    const Child child;
    sock::share_for_good(s);
    child.run();
    told(child);
    child.end();
    assert_false(is_alone(s));
}

void killed_children_hold_nothing(void **)
{
    const Pair pair;
    sock::Stream &s = *pair.a.s;
    for (int i = 0; i < 20; ++i) {
        const Child child;
        told(child);
        ::kill(child.pid, SIGKILL);
        int status = -1;
        assert_int_equal(::waitpid(child.pid, &status, 0), child.pid);
    }
    assert_true(is_alone(s));
    assert_true(is_alone(*pair.b.s));
}

// The counts of the others are in the kernel's.
void counts_are_taken_from_the_kernel(void **)
{
    const Pair pair;
    char bytes[100] = {};
    const Child child;
    told(child);
    child.run();
    assert_int_equal(::send(pair.a.fd, bytes, sizeof bytes, 0), sizeof bytes); // as the child would: nobody counts here
    assert_int_equal(::recv(pair.b.fd, bytes, 30, 0), 30);
    child.end();
    assert_true(is_alone(*pair.a.s));
    assert_true(is_alone(*pair.b.s));
    assert_int_equal(pair.a.s->tx.kernel_bytes.load(), 100);
    assert_int_equal(pair.a.s->rx.kernel_bytes.load(), 0);
    assert_int_equal(pair.b.s->tx.kernel_bytes.load(), 0);
    assert_int_equal(pair.b.s->rx.kernel_bytes.load(), 30);
}

// One thread is in the kernel at any time, where one sends and one receives without a pause.
void each_direction_is_counted_by_itself(void **)
{
    const Pair pair;
    sock::Stream &s = *pair.a.s;
    char bytes[100] = {};
    const auto count_one_way = [&s](std::atomic<std::uint32_t> &calls) {
        calls.store(1);
        const bool alone = is_alone(s);
        calls.store(0);
        return alone;
    };
    const auto send_as_a_child = [&] {
        const Child child;
        told(child);
        child.run();
        assert_int_equal(::send(pair.a.fd, bytes, sizeof bytes, 0), sizeof bytes);
        child.end();
    };
    send_as_a_child();
    assert_false(count_one_way(s.blocked_receivers));
    assert_int_equal(s.tx.kernel_bytes.load(), 100);
    send_as_a_child(); // after which both are to be counted anew
    assert_false(count_one_way(s.blocked_senders));
    assert_false(count_one_way(s.blocked_senders));
    assert_int_equal(::send(pair.a.fd, bytes, 10, 0), 10);
    sock::count_sent(s, 10);
    assert_true(count_one_way(s.blocked_receivers));
    assert_int_equal(s.tx.kernel_bytes.load(), 210);
}

// Whichever thread's call it is at which it is time to ask.
void who_could_not_be_counted_is_asked_for_at_the_next_call(void **)
{
    const Pair pair;
    sock::Stream &s = *pair.a.s;
    const Child child;
    told(child);
    child.run();
    child.end();
    std::uint32_t calls = 1;
    assert_false(sock::may_ask_for_holders(s, calls));
    s.blocked_receivers = 1;
    while (!sock::may_ask_for_holders(s, calls))
        assert_true(++calls < 100);
    assert_false(is_alone(s));
    for (std::uint32_t i = 0; i < 1000; ++i) // by the sender
        assert_false(sock::may_ask_for_holders(s, ++calls));
    s.blocked_receivers = 0;
    s.blocked_senders = 1;
    assert_true(sock::may_ask_for_holders(s, ++calls)); // by the receiver
    assert_true(is_alone(s));
    s.blocked_senders = 0;
}

// What has no room stays with the kernel, and the rest goes on.
void more_sockets_than_there_is_room_for(void **)
{
    std::vector<std::unique_ptr<Pair>> pairs;
    for (std::uint32_t i = 0; i < kCells; ++i)
        pairs.push_back(std::make_unique<Pair>());
    std::size_t alone = 0;
    {
        const Child child;
        told(child);
        child.run();
        child.end();
    }
    for (const auto &pair : pairs)
        alone += (is_alone(*pair->a.s) ? 1U : 0U) + (is_alone(*pair->b.s) ? 1U : 0U);
    assert_int_equal(alone, kCells - 1);
    pairs.clear();
    const Pair pair; // there is room again
    const Child child;
    told(child);
    child.run();
    child.end();
    assert_true(is_alone(*pair.a.s));
}

void more_processes_than_there_is_room_for(void **)
{
    const Pair pair;
    std::vector<std::unique_ptr<Child>> children;
    for (std::uint32_t i = 0; i < kProcesses; ++i) { // one record is our own
        children.push_back(std::make_unique<Child>());
        told(*children.back());
        children.back()->run();
    }
    for (const auto &child : children)
        child->end();
    assert_false(is_alone(*pair.a.s)); // one could not be noted
    const Pair later;
    const Child child;
    told(child);
    child.run();
    child.end();
    assert_true(is_alone(*later.a.s));
}

} // namespace

int main()
{
    const StreamLibrary library;
    config::g_params.opens_early = false; // a copy that is made past fork() finds no thread of ours
    sock::family::set_limits(kProcesses, kCells);
    static const CMUnitTest tests[] = {
        cmocka_unit_test(children_end_in_any_order),
        cmocka_unit_test(a_late_child_takes_nobody_elses_place),
        cmocka_unit_test(who_closes_its_copy_holds_nothing),
        cmocka_unit_test(a_grandchild_holds_it_too),
        cmocka_unit_test(a_process_that_becomes_another_program_holds_nothing),
        cmocka_unit_test(what_survives_an_exec_is_never_alone),
        cmocka_unit_test(killed_children_hold_nothing),
        cmocka_unit_test(counts_are_taken_from_the_kernel),
        cmocka_unit_test(each_direction_is_counted_by_itself),
        cmocka_unit_test(who_could_not_be_counted_is_asked_for_at_the_next_call),
        cmocka_unit_test(more_sockets_than_there_is_room_for),
        cmocka_unit_test(more_processes_than_there_is_room_for),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
