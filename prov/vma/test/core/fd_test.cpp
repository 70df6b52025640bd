// SPDX-License-Identifier: BSD-2-Clause
// The provider's descriptors: numbers, close-on-exec, ends, and what a forked child sees of them.
#include "fabtests/unit.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/fd.hpp"

using vma::core::UniqueFd;

namespace {

UniqueFd make()
{
    return vma::core::make_fd([] { return ::eventfd(0, 0); });
}

bool is_open(int fd)
{
    return ::fcntl(fd, F_GETFD) >= 0;
}

void above_the_program_s_own(void **)
{
    const UniqueFd fd = make();
    assert_true(fd.get() >= 64);
    assert_int_equal(::fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
}

// They take none of the numbers that the program may have.
void above_a_small_limit(void **)
{
    rlimit saved{};
    assert_int_equal(::getrlimit(RLIMIT_NOFILE, &saved), 0);
    if (saved.rlim_max <= 256)
        UNIT_SKIP("the hard limit of descriptors is a small one, too");
    rlimit small = saved;
    small.rlim_cur = 32;
    assert_int_equal(::setrlimit(RLIMIT_NOFILE, &small), 0);
    UniqueFd held[64];
    for (UniqueFd &fd : held)
        fd = make();
    const UniqueFd copy = vma::core::duplicate_fd(held[0].get());
    rlimit after{};
    assert_int_equal(::getrlimit(RLIMIT_NOFILE, &after), 0);
    assert_int_equal(::setrlimit(RLIMIT_NOFILE, &saved), 0);
    for (const UniqueFd &fd : held)
        assert_true(fd.get() >= 32);
    assert_true(copy.get() >= 32);
    assert_int_equal(after.rlim_cur, small.rlim_cur);
    assert_int_equal(after.rlim_max, small.rlim_max);
}

bool serves_low_numbers()
{
    constexpr rlimit kSmall = {32, 32};
    if (::setrlimit(RLIMIT_NOFILE, &kSmall) != 0)
        return false;
    UniqueFd held[64];
    int made = 0;
    for (UniqueFd &fd : held) {
        fd = make();
        if (!fd)
            break;
        ++made;
    }
    return errno == EMFILE && made >= 16 && !vma::core::duplicate_fd(held[0].get());
}

// In a child: a limit that can't be raised is for good.
void within_a_small_limit(void **)
{
    const pid_t child = ::fork();
    if (child == 0)
        _exit(serves_low_numbers() ? 0 : 1);
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

void ends(void **)
{
    UniqueFd one = make();
    const int number = one.get();
    UniqueFd two = std::move(one);
    assert_false(static_cast<bool>(one)); // NOLINT(bugprone-use-after-move): a moved one is empty
    two = UniqueFd();
    assert_false(is_open(number));
    UniqueFd three = make();
    const int released = three.release();
    assert_true(is_open(released));
    ::close(released);
}

void a_child_has_none_of_them(void **)
{
    UniqueFd ours = make();
    UniqueFd given_away = make();
    const int other = given_away.release();
    const std::uint32_t generation = vma::core::fork_generation();
    const pid_t child = ::fork();
    if (child == 0) {
        bool right = !is_open(ours.get()) && is_open(other) && vma::core::fork_generation() == generation + 1;
        // A number that the parent's object names may be somebody else's here.
        right = right && ::dup2(other, ours.get()) == ours.get();
        const int number = ours.get();
        ours.reset();
        right = right && is_open(number);
        right = right && static_cast<bool>(make());
        _exit(right ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(is_open(ours.get()));
    ::close(other);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(above_the_program_s_own),  cmocka_unit_test(above_a_small_limit),
        cmocka_unit_test(within_a_small_limit),     cmocka_unit_test(ends),
        cmocka_unit_test(a_child_has_none_of_them),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
