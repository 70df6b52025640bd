// SPDX-License-Identifier: BSD-2-Clause
// The table of libc's functions, the child of vfork(), and the descriptors that are the library's own.
#include "fabtests/unit.hpp"

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "compat/src/libc/next_symbol.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/vfork.hpp"
#include "include/vma/raised_limit.hpp"

using namespace vma::libc;

namespace {

const Real g_unfilled = real; // made before anything is called
int g_answer = 42;

// Runs first: nothing has filled the table yet.
void usable_before_it_is_filled(void **)
{
    int ends[2];
    assert_int_equal(real.pipe(ends), 0);
    assert_int_equal(real.write(ends[1], "ab", 2), 2);
    char got[2];
    assert_int_equal(real.read(ends[0], got, 2), 2);
    assert_memory_equal(got, "ab", 2);
    assert_int_equal(real.fcntl(ends[0], F_GETFD), 0);
    assert_int_equal(real.close(ends[0]), 0);
    assert_int_equal(real.close(ends[1]), 0);
}

void stubs_pass_arguments_on(void **)
{
    const int fd = g_unfilled.open("/tmp", O_TMPFILE | O_RDWR, 0640);
    assert_true(fd >= 0);
    struct stat about;
    assert_int_equal(::fstat(fd, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    const int other = g_unfilled.openat(AT_FDCWD, "/tmp", O_TMPFILE | O_RDWR, 0600);
    assert_true(other >= 0);
    ::close(other);
    assert_int_equal(g_unfilled.fcntl(fd, F_DUPFD, 100), 100);
    assert_int_equal(g_unfilled.write(fd, "abc", 3), 3);
    int flag = 1;
    assert_int_equal(g_unfilled.ioctl(100, FIOCLEX, &flag), 0);
    assert_int_equal(::fcntl(100, F_GETFD), FD_CLOEXEC);
    ::close(100);
    ::close(fd);
    assert_int_equal(g_unfilled.syscall(SYS_getpid), ::getpid());
    assert_int_equal(g_unfilled.__poll_chk(nullptr, 0, 0, 0), 0);
}

void stub_of_clone(void **)
{
    static char stack[65536];
    pid_t in_parent = -1;
    pid_t in_child = -1;
    const pid_t child =
        g_unfilled.clone([](void *answer) { return *static_cast<int *>(answer); }, stack + sizeof stack,
                         CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, &g_answer, &in_parent, nullptr, &in_child);
    assert_true(child > 0);
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), g_answer);
    assert_int_equal(in_parent, child);
}

void entries_are_libcs(void **)
{
    resolve_real();
    void *const libc = ::dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    assert_non_null(libc);
#define X(name)                                                                                                        \
    if (reinterpret_cast<void *>(real.name) != ::dlsym(RTLD_NEXT, #name))                                              \
        UNIT_FAIL(#name);
    VMA_REAL_FUNCTIONS(X)
#undef X
#define X(type, name)                                                                                                  \
    if (reinterpret_cast<void *>(real.name) != ::dlsym(RTLD_NEXT, #name))                                              \
        UNIT_FAIL(#name);
    VMA_REAL_CHECKED(X)
#undef X
    ::dlclose(libc);
}

// At a program's start: each function that is found without dlsym() is the one that dlsym() finds, and nearly all are
// found.
void next_symbols_are_dlsyms(void **)
{
    const NextSymbols next;
    unsigned missed = 0;
    const auto look = [&](const char *name) {
        void *const found = next.find(name, symbol_hash(name));
        missed += found == nullptr ? 1 : 0;
        if (found != nullptr && found != ::dlsym(RTLD_NEXT, name))
            UNIT_FAIL(name);
    };
#define X(name) look(#name);
    VMA_REAL_FUNCTIONS(X)
#undef X
#define X(type, name) look(#name);
    VMA_REAL_CHECKED(X)
#undef X
    assert_null(next.find("no_such_function", symbol_hash("no_such_function")));
    assert_null(next.find("", symbol_hash("")));
    assert_true(missed <= 3);
    resolve_real_at_start();
    entries_are_libcs(nullptr);
}

void filling_again_changes_nothing(void **)
{
    const auto before = real.read;
    errno = E2BIG;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back(resolve_real);
    for (std::thread &thread : threads)
        thread.join();
    resolve_real();
    assert_int_equal(errno, E2BIG);
    assert_ptr_equal(real.read, before);
}

void child_of_vfork_is_known(void **)
{
    assert_false(in_vfork_child());
    int status = -1;
    entering_vfork();
    const pid_t child = ::vfork();
    if (child == 0)
        ::_exit(in_vfork_child() ? 0 : 1);
    assert_false(in_vfork_child());
    assert_int_equal(t_libc.vfork_caller, 0);
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    std::thread([] { assert_false(in_vfork_child()); }).join();
}

void private_numbers_are_high(void **)
{
    int ends[2];
    assert_int_equal(::pipe(ends), 0);
    const int moved = make_private(ends[0]);
    assert_true(moved >= 128);
    assert_true(is_private(moved));
    assert_false(is_private(ends[1]));
    assert_false(is_private(-1));
    assert_false(is_private(1 << 30));
    assert_int_equal(::fcntl(moved, F_GETFD), FD_CLOEXEC);
    assert_int_equal(::fcntl(ends[0], F_GETFD), -1);
    close_private(moved);
    assert_false(is_private(moved));
    assert_int_equal(::fcntl(moved, F_GETFD), -1);
    ::close(ends[1]);
    close_private(-1);
}

// Lowered later, the limit leaves the program as many numbers as without us; and it is what the program has set.
void private_numbers_above_a_small_limit(void **)
{
    rlimit before;
    ::getrlimit(RLIMIT_NOFILE, &before);
    if (before.rlim_max <= 128)
        UNIT_SKIP("the hard limit of descriptors is a small one, too");
    const int other = ::dup(0);
    const rlimit small = {64, before.rlim_max};
    assert_int_equal(::setrlimit(RLIMIT_NOFILE, &small), 0);
    const int moved = make_private(::dup(0));
    rlimit after;
    ::getrlimit(RLIMIT_NOFILE, &after);
    const int beyond = refused_duplicate(other, moved);
    ::setrlimit(RLIMIT_NOFILE, &before);
    assert_true(moved >= 64);
    assert_int_equal(after.rlim_cur, 64);
    assert_int_equal(after.rlim_max, before.rlim_max);
    assert_int_equal(beyond, EBADF);
    assert_int_equal(refused_duplicate(other, moved), EBUSY);
    ::close(other);
    assert_int_equal(refused_duplicate(other, moved), EBADF);
    close_private(moved);
}

// Another thread sets a limit while ours is raised.
void a_limit_set_meanwhile_stays(void **)
{
    static rlimit now;
    now = {64, 1 << 20};
    const auto prlimit = [](const rlimit *to, rlimit *was) {
        if (was != nullptr)
            *was = now;
        now = *to;
        return 0;
    };
    const auto duplicate = [](int lowest) {
        now.rlim_cur = 40;
        return lowest;
    };
    assert_true(vma::duplicate_above(now, prlimit, duplicate) >= 64);
    assert_int_equal(now.rlim_cur, 40);
    assert_int_equal(vma::duplicate_above({2000, 2000}, prlimit, duplicate), -1);
}

// A limit that isn't small is looked at once, until a number is refused.
void limit_is_noted(void **)
{
    vma::NotedLimit noted;
    rlimit now = {4096, 4096};
    int looks = 0;
    int refusal = EINVAL;
    const auto read = [&] {
        ++looks;
        return now;
    };
    const auto lowest = [&](const rlimit &limit) {
        if (limit.rlim_cur <= now.rlim_cur)
            return static_cast<int>(limit.rlim_cur);
        errno = refusal;
        return -1;
    };
    assert_int_equal(noted.with(read, lowest), 4096);
    for (int i = 0; i < 3; ++i)
        assert_int_equal(noted.with(read, lowest), 1024);
    assert_int_equal(looks, 1);
    now = {40, 4096};
    for (int i = 0; i < 3; ++i)
        assert_int_equal(noted.with(read, lowest), 40);
    assert_int_equal(looks, 4);
    now = {1024, 4096}; // also when it is raised again
    assert_int_equal(noted.with(read, lowest), 1024);
    assert_int_equal(noted.with(read, lowest), 1024);
    assert_int_equal(looks, 5);
    now = {1000, 4096}; // of which some numbers were to be had
    refusal = EMFILE;
    assert_int_equal(noted.with(read, lowest), 1000);
    assert_int_equal(looks, 6);
    now = {1024, 4096};
    assert_int_equal(noted.with(read, lowest), 1024);
    // What fails for another reason is asked once.
    int tries = 0;
    const auto none_left = [&](const rlimit &) {
        ++tries;
        errno = EBADF;
        return -1;
    };
    assert_int_equal(noted.with(read, none_left), -1);
    assert_int_equal(tries, 1);
}

bool keeps_its_number()
{
    const int fd = ::dup(0);
    const rlimit none = {static_cast<rlim_t>(fd) + 1, static_cast<rlim_t>(fd) + 1};
    if (fd < 0 || ::setrlimit(RLIMIT_NOFILE, &none) != 0)
        return false;
    const int kept = make_private(fd);
    const bool ok = kept >= 0 && kept <= fd && is_private(kept);
    close_private(kept);
    return ok;
}

// In a child: a limit that can't be raised is for good.
void private_number_without_room(void **)
{
    const pid_t child = ::fork();
    if (child == 0)
        ::_exit(keeps_its_number() ? 0 : 1);
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

void map_of_numbers(void **)
{
    static DescriptorMap<256> map;
    assert_int_equal(map.next(0, ~0U), -1);
    for (const int fd : {0, 63, 64, 200, 255}) {
        assert_false(map.has(fd));
        map.add(fd);
        assert_true(map.has(fd));
    }
    map.add(256); // out of it
    map.add(-1);
    assert_false(map.has(256));
    assert_false(map.has(-1));
    assert_int_equal(map.next(0, ~0U), 0);
    assert_int_equal(map.next(1, ~0U), 63);
    assert_int_equal(map.next(64, 199), 64);
    assert_int_equal(map.next(65, 199), -1);
    assert_int_equal(map.next(65, 200), 200);
    assert_int_equal(map.next(201, ~0U), 255);
    assert_int_equal(map.next(256, ~0U), -1);
    assert_int_equal(map.next(~0U, ~0U), -1);
    map.remove(255);
    assert_int_equal(map.next(201, ~0U), -1);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(usable_before_it_is_filled),
        cmocka_unit_test(stubs_pass_arguments_on),
        cmocka_unit_test(stub_of_clone),
        cmocka_unit_test(entries_are_libcs),
        cmocka_unit_test(next_symbols_are_dlsyms),
        cmocka_unit_test(filling_again_changes_nothing),
        cmocka_unit_test(child_of_vfork_is_known),
        cmocka_unit_test(private_numbers_are_high),
        cmocka_unit_test(private_numbers_above_a_small_limit),
        cmocka_unit_test(a_limit_set_meanwhile_stays),
        cmocka_unit_test(limit_is_noted),
        cmocka_unit_test(private_number_without_room),
        cmocka_unit_test(map_of_numbers),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
