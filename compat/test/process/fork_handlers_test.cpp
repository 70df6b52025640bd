// SPDX-License-Identifier: BSD-2-Clause
// The fork handlers of the provider and of libraries that it needs: all of them run, each in its turn, and what goes
// beyond is libc's.
#include "fabtests/unit.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <sstream>
#include <string>
#include <thread>

#include "compat/src/base/spare_room.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/fork_handlers.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"

using namespace vma;

namespace {

constexpr unsigned kKept = 16;

char g_ran[32];

template <char kName> void note()
{
    const std::size_t length = std::strlen(g_ran);
    if (length < sizeof g_ran - 1)
        g_ran[length] = kName;
}

void nothing() {}

void test_all_in_the_order_of_posix(void **)
{
    assert_false(sock::keep_fork_handlers(&nothing, &nothing, &nothing));       // nothing is being loaded
    assert_false(sock::keep_allocators_handlers(&nothing, &nothing, &nothing)); // malloc() is in another object
    assert_false(sock::keep_allocators_handlers(nullptr, nullptr, nullptr));
    sock::loading_provider(true);
    assert_true(sock::keep_fork_handlers(&note<'a'>, &note<'A'>, &note<'1'>));
    assert_true(sock::keep_fork_handlers(&note<'b'>, nullptr, &note<'2'>));
    assert_true(sock::keep_fork_handlers(nullptr, &note<'C'>, &note<'3'>));
    assert_true(sock::keep_fork_handlers(&note<'d'>, &note<'D'>, nullptr));
    sock::loading_provider(false);
    assert_false(sock::keep_fork_handlers(&nothing, &nothing, &nothing));

    const pid_t child = ::fork();
    if (child == 0)
        ::_exit(std::strcmp(g_ran, "dba123") == 0 ? 0 : 1);
    assert_true(child > 0);
    assert_string_equal(g_ran, "dbaACD");
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

void wait_for(pid_t child)
{
    int status = -1;
    assert_true(child > 0);
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

pid_t g_child = -1;

// The fork comes while a descriptor of the library's is moved above the program's limit.
int fork_and_duplicate(int fd, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    const int argument = va_arg(rest, int);
    va_end(rest);
    g_child = ::fork();
    if (g_child == 0) {
        rlimit limit;
        ::_exit(::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == 64 ? 0 : 1);
    }
    return ::fcntl(fd, command, argument);
}

void test_a_child_has_the_programs_limit(void **)
{
    rlimit before;
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit small = {64, before.rlim_max};
    assert_int_equal(::setrlimit(RLIMIT_NOFILE, &small), 0);
    libc::real.fcntl = fork_and_duplicate;
    const int moved = libc::make_private(::dup(0));
    libc::real.fcntl = ::fcntl;
    ::setrlimit(RLIMIT_NOFILE, &before);
    libc::close_private(moved);
    wait_for(g_child);
}

// Rooms in which calls of other threads are when this one forks.
void test_a_child_has_the_rooms_of_the_others(void **)
{
    constexpr std::size_t kLarge = 16384;
    constexpr std::size_t kOthers = 7;
    sock::SpareRoom own;
    own.take();
    assert_int_equal(own.size(), kLarge);
    std::binary_semaphore taken(0);
    std::binary_semaphore over(0);
    std::thread other([&] {
        sock::SpareRoom rooms[kOthers];
        for (sock::SpareRoom &room : rooms)
            room.take();
        taken.release();
        over.acquire();
    });
    taken.acquire();
    const pid_t child = ::fork();
    if (child == 0) {
        sock::SpareRoom rooms[kOthers + 1];
        std::size_t large = 0;
        for (sock::SpareRoom &room : rooms) {
            room.take();
            large += room.size() == kLarge ? 1 : 0;
        }
        ::_exit(large == kOthers ? 0 : 1);
    }
    over.release();
    other.join();
    wait_for(child);
}

void test_one_too_many_is_libcs(void **)
{
    char folder[] = "/tmp/fork_handlers_test-XXXXXX";
    assert_non_null(::mkdtemp(folder));
    const std::string path = std::string(folder) + "/log";
    config::Params params = config::params();
    params.log_file = path.c_str();
    config::open_log(params);
    sock::loading_provider(true);
    unsigned kept = 0;
    while (kept <= kKept && sock::keep_fork_handlers(&nothing, &nothing, &nothing))
        ++kept;
    sock::loading_provider(false);
    config::close_log();
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    std::filesystem::remove_all(folder);
    assert_int_equal(kept, kKept - 4); // of the test before
    assert_non_null(std::strstr(text.str().c_str(), "register more than 16 handlers of fork()"));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_all_in_the_order_of_posix),
        cmocka_unit_test(test_a_child_has_the_programs_limit),
        cmocka_unit_test(test_a_child_has_the_rooms_of_the_others),
        cmocka_unit_test(test_one_too_many_is_libcs),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
