// SPDX-License-Identifier: BSD-2-Clause
// System V segments outlive the processes that made them. A process is killed at each of its system calls while it
// makes one, or gives one up: the next that opens the directory leaves none of it.
#include "fabtests/unit.hpp"

#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/fleeting_segment.hpp"
#include "compat/src/rendezvous/generation.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/rendezvous/shared_leftovers.hpp"
#include "compat/src/rendezvous/unread_links.hpp"

using namespace vma;

namespace {

using Deed = void (*)();

char g_directory[] = "/tmp/vma-test-XXXXXX"; // of this test alone

pid_t begin(Deed deed)
{
    const auto child = static_cast<pid_t>(libc::real.syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    assert_true(child >= 0);
    if (child != 0)
        return child;
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0)
        ::_exit(1);
    ::syscall(SYS_kill, ::syscall(SYS_getpid), SIGSTOP);
    deed();
    ::_exit(0);
}

// Killed where it stops the `stop`th time, before a system call or behind it. False: it has come to its end.
bool killed_at(pid_t child, int stop)
{
    int status = 0;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_true(WIFSTOPPED(status));
    for (int i = 0; i < stop; ++i) {
        assert_int_equal(::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr), 0);
        assert_int_equal(::waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            return false;
        }
        assert_true(WIFSTOPPED(status));
    }
    ::kill(child, SIGKILL);
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    return true;
}

int segments_of(pid_t maker)
{
    FILE *const list = libc::real.fopen("/proc/sysvipc/shm", "re");
    assert_non_null(list);
    char line[512];
    int count = 0;
    while (::fgets(line, sizeof line, list) != nullptr) {
        int by = 0;
        count += std::sscanf(line, " %*d %*d %*o %*u %d", &by) == 1 && by == maker ? 1 : 0;
    }
    libc::real.fclose(list);
    return count;
}

void check_each_kill(Deed deed, Deed next)
{
    int kills = 0;
    int left_by_some = 0;
    for (bool killed = true; killed; ++kills) {
        const pid_t child = begin(deed);
        killed = killed_at(child, kills + 1);
        left_by_some += segments_of(child);
        next();
        assert_int_equal(segments_of(child), 0);
    }
    print_message("# killed at %d places, a segment left for the next process at %d\n", kills - 1, left_by_some);
    assert_true(kills > 4);
}

void map_words()
{
    std::uint32_t id = 0;
    if (sock::map_generations(g_directory, id) == nullptr)
        ::_exit(2);
}

void map_words_in_a_process_of_its_own()
{
    int status = -1;
    const pid_t child = ::fork();
    if (child == 0) {
        map_words();
        ::_exit(0);
    }
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

void of_the_words(void **)
{
    check_each_kill(map_words, map_words_in_a_process_of_its_own);
}

void keep_and_drop_unread()
{
    const int fd = libc::real.socket(AF_INET, SOCK_STREAM, 0);
    sock::SharedLeftovers *const unread = sock::make_unread(fd, 10);
    if (unread == nullptr)
        ::_exit(3);
    sock::publish_unread(*unread, 10);
    sock::leave_unread(unread);
}

void of_unread_bytes(void **)
{
    assert_true(sock::open_offers());
    check_each_kill(keep_and_drop_unread, sock::remove_unread_of_the_dead);
    assert_int_not_equal(::access(sock::unread_folder().text, F_OK), 0);
}

// Where no link can be made the processes that hold the socket have a segment without a name.
void keep_without_a_name()
{
    const std::string folder = sock::unread_folder().text;
    if (::symlink("/nowhere", folder.c_str()) != 0)
        ::_exit(4);
    keep_and_drop_unread();
}

void clear_up()
{
    ::unlink(sock::unread_folder().text);
    sock::remove_half_made(sock::offers_directory());
}

void of_unread_bytes_without_a_name(void **)
{
    assert_true(sock::open_offers());
    check_each_kill(keep_without_a_name, clear_up);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(of_the_words),
        cmocka_unit_test(of_unread_bytes),
        cmocka_unit_test(of_unread_bytes_without_a_name),
    };
    if (::mkdtemp(g_directory) == nullptr)
        return 1;
    ::setenv("VMA_SHM_DIR", g_directory, 1);
    ::setenv("VMA_TRACELEVEL", "error", 0); // where no link can be made there is a warning
    libc::resolve_real();
    config::load_params();
    const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
    return ::system((std::string("rm -r ") + g_directory).c_str()) == 0 ? failed : 1;
}
