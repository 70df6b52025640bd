// SPDX-License-Identifier: BSD-2-Clause
// Which processes hold a socket, when they are copied and end in any order: nobody who is left alone has been told so too early, as
// what another one then sends is not counted, and bytes come in a wrong order.
#include "fabtests/unit.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compat/src/libc/real.hpp"
#include "compat/src/socket/engine_objects.hpp"
#include "compat/src/socket/holders.hpp"
#include "compat/src/socket/stream.hpp"
#include "compat/test/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

// A copy of this process that does nothing before it is told to. No handlers of fork() run: what they do is done here, one by one.
class Child
{
public:
    explicit Child(sock::Socket &s)
    {
        assert_int_equal(::pipe(to_), 0);
        assert_int_equal(::pipe(from_), 0);
        sock::g_lift_lock.lock();
        sock::holders_before_fork();
        sock::share_with_child(s);
        sock::g_lift_lock.unlock();
        pid = static_cast<pid_t>(libc::real.syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
        assert_true(pid >= 0);
        if (pid == 0)
            live(s);
    }

    // It comes to run for the first time.
    void run() const
    {
        char byte = 0;
        assert_int_equal(libc::real.write(to_[1], "r", 1), 1);
        assert_int_equal(libc::real.read(from_[0], &byte, 1), 1);
    }
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
    [[noreturn]] void live(sock::Socket &s) const
    {
        char byte = 0;
        libc::real.close(to_[1]); // it ends with a test that fails
        bool good = libc::real.read(to_[0], &byte, 1) == 1;
        sock::holders_after_fork_in_child(s);
        good = good && libc::real.write(from_[1], "r", 1) == 1 && libc::real.read(to_[0], &byte, 1) == 1;
        libc::real.syscall(SYS_exit_group, good ? 0 : 1);
        __builtin_unreachable();
    }

    int to_[2];
    int from_[2];
};

void told(sock::Socket &s, const Child &child)
{
    sock::holders_after_fork(s, child.pid);
}

bool is_alone(sock::Socket &s)
{
    sock::LockGuard guard(sock::g_lift_lock);
    return sock::hold_alone(s);
}

void children_end_in_any_order(void **)
{
    for (const bool told_first : {false, true}) {
        const Pair pair;
        sock::Socket &s = *pair.a.s;
        const Child child(s);
        assert_false(is_alone(s));
        if (told_first)
            told(s, child);
        assert_false(is_alone(s));
        child.run();
        if (!told_first)
            told(s, child);
        assert_false(is_alone(s));
        child.end();
        assert_true(is_alone(s));
    }
}

// The parent knows the first child and makes a second one before the first has come to run.
void a_late_child_takes_nobody_elses_place(void **)
{
    const Pair pair;
    sock::Socket &s = *pair.a.s;
    const Child first(s);
    told(s, first);
    const Child second(s);
    first.run();
    first.end();
    second.run();
    told(s, second);
    assert_false(is_alone(s));
    second.end();
    assert_true(is_alone(s));
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(children_end_in_any_order),
        cmocka_unit_test(a_late_child_takes_nobody_elses_place),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
