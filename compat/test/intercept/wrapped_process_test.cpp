// SPDX-License-Identifier: BSD-2-Clause
// New processes, new programs and signals, through the wrappers.
#include "compat/test/intercept/wrapped.hpp"
#include "fabtests/patience.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // siginterrupt()

namespace {

std::string g_self;

void every_exec(void **)
{
    char sh[] = "sh", dash_c[] = "-c", script[] = "exit ${CODE:-7}", code[] = "CODE=9";
    char *const arguments[] = {sh, dash_c, script, nullptr};
    char *const environment[] = {code, nullptr};
    assert_int_equal(exit_status(in_fork([&] { return ::execv("/bin/sh", arguments); })), 7);
    assert_int_equal(exit_status(in_fork([&] { return ::execve("/bin/sh", arguments, environment); })), 9);
    assert_int_equal(exit_status(in_fork([&] { return ::execvp("sh", arguments); })), 7);
    assert_int_equal(exit_status(in_fork([&] { return ::execvpe("sh", arguments, environment); })), 9);
    assert_int_equal(exit_status(in_fork([&] { return ::execl("/bin/sh", sh, dash_c, script, nullptr); })), 7);
    assert_int_equal(exit_status(in_fork([&] { return ::execlp("sh", sh, dash_c, script, nullptr); })), 7);
    assert_int_equal(
        exit_status(in_fork([&] { return ::execle("/bin/sh", sh, dash_c, script, nullptr, environment); })), 9);
    assert_int_equal(exit_status(in_fork([&] {
                         const int fd = ::open("/bin/sh", O_RDONLY | O_CLOEXEC);
                         return ::fexecve(fd, arguments, environment);
                     })),
                     9);
    assert_int_equal(exit_status(in_fork([&] { return ::execveat(AT_FDCWD, "/bin/sh", arguments, environment, 0); })),
                     9);
    assert_int_equal(::execl("/nowhere", sh, nullptr), -1);
    assert_int_equal(errno, ENOENT);
}

void long_argument_lists(void **)
{
    const pid_t child = in_fork([] {
        return ::execl("/bin/sh", "sh", "-c", "test $# = 12 && test ${12} = l", "0", "a", "b", "c", "d", "e", "f", "g",
                       "h", "i", "j", "k", "l", nullptr);
    });
    assert_int_equal(exit_status(child), 0);
}

void spawning(void **)
{
    char sh[] = "sh", dash_c[] = "-c", script[] = "exit 5";
    char *const arguments[] = {sh, dash_c, script, nullptr};
    pid_t child = -1;
    assert_int_equal(::posix_spawn(&child, "/bin/sh", nullptr, nullptr, arguments, environ), 0);
    assert_int_equal(exit_status(child), 5);
    assert_int_equal(::posix_spawnp(&child, "sh", nullptr, nullptr, arguments, environ), 0);
    assert_int_equal(exit_status(child), 5);
    assert_int_equal(WEXITSTATUS(::system("exit 3")), 3);
    assert_true(::system(nullptr) != 0);
    FILE *const out = ::popen("echo said", "r");
    char line[16] = {};
    assert_non_null(std::fgets(line, sizeof line, out));
    assert_string_equal(line, "said\n");
    assert_int_equal(::pclose(out), 0);
}

// The child closes and opens what it likes; the parent's sockets are as they were.
void child_of_vfork_has_its_own_table(void **)
{
    const Pair pair = connect_pair();
    volatile int shared = 0;
    const pid_t child = ::vfork();
    if (child == 0) {
        shared = 1; // the parent's memory
        ::signal(SIGUSR1, SIG_IGN);
        ::close(pair.a);
        ::dup2(0, pair.b);
        ::close_range(3, 500, 0);
        const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        if (fd >= 0 && ::epoll_create1(0) >= 0)
            ::execl("/bin/sh", "sh", "-c", "exit 6", nullptr);
        ::_exit(1);
    }
    assert_true(child > 0);
    assert_int_equal(exit_status(child), 6);
    assert_int_equal(shared, 1);
    assert_int_equal(::write(pair.a, "still", 5), 5);
    expect_bytes(pair.b, "still");
    close_pair(pair);
}

pid_t fork_by_clone()
{
    static char stack[65536];
    return ::clone([](void *) { return 4; }, stack + sizeof stack, SIGCHLD, nullptr);
}

void forks(void **)
{
    const Pair pair = connect_pair();
    assert_int_equal(exit_status(in_fork([&] { return static_cast<int>(::write(pair.a, "f", 1)); })), 1);
    const pid_t child = ::_Fork();
    if (child == 0)
        ::_exit(::write(pair.a, "g", 1) == 1 ? 2 : 3);
    assert_int_equal(exit_status(child), 2);
    assert_int_equal(exit_status(fork_by_clone()), 4);
    assert_int_equal(::write(pair.a, "h", 1), 1);
    expect_bytes(pair.b, "fgh");
    close_pair(pair);
}

volatile sig_atomic_t g_alarms;

void count_alarm(int)
{
    g_alarms = g_alarms + 1;
}

// What put signals off while the library was locked for the fork is over in the child.
void handlers_run_in_the_child(void **)
{
    const Pair pair = connect_pair();
    const auto use = [&] {
        assert_true(::signal(SIGUSR1, count_alarm) != SIG_ERR);
        g_alarms = 0;
        static_cast<void>(::write(pair.a, "x", 1));
        ::raise(SIGUSR1);
        return static_cast<int>(g_alarms);
    };
    assert_int_equal(exit_status(in_fork(use)), 1);
    const pid_t child = ::_Fork();
    if (child == 0)
        ::_exit(use());
    assert_int_equal(exit_status(child), 1);
    assert_int_equal(use(), 1);
    close_pair(pair);
}

// Sends SIGALRM to the thread that makes it, as soon as that sleeps: a timer may end before the call begins that it is
// to interrupt.
class Interrupter
{
public:
    explicit Interrupter(const std::function<void()> &then = [] {})
        : thread_([then, thread = ::gettid()] {
              while (!sleeps(thread))
                  std::this_thread::yield();
              ::tgkill(::getpid(), thread, SIGALRM);
              then();
          })
    {
    }
    ~Interrupter() { thread_.join(); }
    Interrupter(const Interrupter &) = delete;
    Interrupter &operator=(const Interrupter &) = delete;

private:
    static bool sleeps(pid_t thread)
    {
        std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
        const std::string text(std::istreambuf_iterator<char>(file), {});
        return text.compare(text.rfind(')') + 1, 2, " S") == 0;
    }

    std::thread thread_;
};

// signal(7): recv() goes on after a handler with SA_RESTART, poll() never does.
void signals_interrupt(void **)
{
    const Pair pair = connect_pair();
    assert_true(::signal(SIGALRM, count_alarm) == SIG_DFL);
    pollfd entry = {pair.b, POLLIN, 0};
    g_alarms = 0;
    {
        const Interrupter interrupter;
        assert_int_equal(::poll(&entry, 1, patience::milliseconds()), -1);
        assert_int_equal(errno, EINTR);
        assert_int_equal(g_alarms, 1);
    }
    ::siginterrupt(SIGALRM, 1);
    char byte;
    {
        const Interrupter interrupter;
        assert_int_equal(::recv(pair.b, &byte, 1, 0), -1);
        assert_int_equal(errno, EINTR);
    }
    ::siginterrupt(SIGALRM, 0);
    int go_on[2];
    assert_int_equal(::pipe(go_on), 0);
    const pid_t child = in_fork([&] {
        char told;
        return ::read(go_on[0], &told, 1) == 1 && ::write(pair.a, "x", 1) == 1 ? 0 : 1;
    });
    {
        const Interrupter interrupter([&] {
            while (g_alarms != 3)
                std::this_thread::yield();
            static_cast<void>(::write(go_on[1], "g", 1));
        });
        assert_int_equal(::recv(pair.b, &byte, 1, 0), 1); // restarted
        assert_int_equal(g_alarms, 3);
    }
    assert_int_equal(exit_status(child), 0);
    ::close(go_on[0]);
    ::close(go_on[1]);
    assert_true(::signal(SIGALRM, SIG_DFL) == count_alarm);
    close_pair(pair);
}

void log_survives_closefrom(void **)
{
    if (bare())
        UNIT_SKIP("run without the library");
    char name[] = "/tmp/vma-wrapped-test-XXXXXX";
    assert_non_null(::mkdtemp(name));
    const std::string file = std::string(name) + "/log";
    ::setenv("VMA_LOG_FILE", file.c_str(), 1);
    ::setenv("VMA_TRACELEVEL", "info", 1);
    const pid_t child = in_fork([] { return ::execl(g_self.c_str(), g_self.c_str(), "closefrom", nullptr); });
    const int status = exit_status(child);
    ::unsetenv("VMA_LOG_FILE");
    ::setenv("VMA_TRACELEVEL", "warn", 1);
    assert_int_equal(status, 0);
    assert_true(std::filesystem::file_size(file) > 100); // the header is there
    std::filesystem::remove_all(name);
}

// In a program of its own: closes what it never opened; no descriptor of the library may be among it.
int child_closes_everything()
{
    const auto open_ones = [] {
        int count = 0;
        for (int fd = 3; fd < 2048; ++fd)
            count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
        return count;
    };
    ::closefrom(3);
    ::close_range(3, ~0U, 0);
    for (int fd = 3; fd < 2048; ++fd)
        ::close(fd);
    return open_ones() == 1 ? 0 : 1; // the log's
}

} // namespace

int main(int argc, char **argv)
{
    if (const int failed = run_under_library(argv))
        return failed;
    if (argc > 1)
        return child_closes_everything();
    g_self = std::filesystem::read_symlink("/proc/self/exe").string();
    const CMUnitTest tests[] = {
        cmocka_unit_test(every_exec),
        cmocka_unit_test(long_argument_lists),
        cmocka_unit_test(spawning),
        cmocka_unit_test(child_of_vfork_has_its_own_table),
        cmocka_unit_test(forks),
        cmocka_unit_test(handlers_run_in_the_child),
        cmocka_unit_test(signals_interrupt),
        cmocka_unit_test(log_survives_closefrom),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
