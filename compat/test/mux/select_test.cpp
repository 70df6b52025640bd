// SPDX-License-Identifier: BSD-2-Clause
// select() over offloaded, kernel-only and untracked descriptors: results bit for bit the kernel's, on the first look,
// after a spin, after a sleep.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <sys/select.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/wait_cases.hpp"

namespace {

using namespace vma;
using namespace vma::test;

struct Sets {
    fd_set in = {};
    fd_set out = {};
    fd_set err = {};
};

int select_now(int nfds, Sets &sets)
{
    return mux::select(nfds, &sets.in, &sets.out, &sets.err, &kNow, nullptr, nullptr);
}

void select_over_both_kinds(void **)
{
    const Socket s;
    const Pipe pipe;
    Sets sets;
    const int nfds = std::max(s.fd, pipe.fds[0]) + 1;
    const auto fill = [&sets, &s, &pipe] {
        sets = {};
        FD_SET(s.fd, &sets.in);
        FD_SET(pipe.fds[0], &sets.in);
        FD_SET(s.fd, &sets.out);
        FD_SET(s.fd, &sets.err);
    };
    fill();
    assert_int_equal(select_now(nfds, sets), 1);
    assert_true(FD_ISSET(s.fd, &sets.out) && !FD_ISSET(s.fd, &sets.in) && !FD_ISSET(s.fd, &sets.err));
    fake::deliver(s.fd);
    fill();
    assert_int_equal(select_now(nfds, sets), 2);
    assert_true(FD_ISSET(s.fd, &sets.out) && FD_ISSET(s.fd, &sets.in));
    fake::consume(s.fd);
    fake::set_full(s.fd, true);
    assert_int_equal(::write(pipe.fds[1], "x", 1), 1);
    fill();
    assert_int_equal(select_now(nfds, sets), 1);
    assert_true(FD_ISSET(pipe.fds[0], &sets.in) && !FD_ISSET(s.fd, &sets.in));
}

void select_refuses_what_the_kernel_refuses(void **)
{
    const Socket s;
    fake::set_full(s.fd, true);
    Sets sets;
    FD_SET(s.fd, &sets.in);
    FD_SET(900, &sets.in);
    assert_int_equal(select_now(901, sets), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(select_now(-1, sets), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(mux::select(0, nullptr, nullptr, nullptr, &kNow, nullptr, nullptr), 0);
    FD_CLR(900, &sets.in);
    assert_int_equal(select_now(s.fd + 1, sets), 0);
    assert_false(FD_ISSET(s.fd, &sets.in));
}

// Descriptors from FD_SETSIZE on are the kernel's business, and ours: who calls select() with them has made room.
void select_beyond_its_size(void **)
{
    constexpr int kHigh = 3000;
    const Socket s;
    if (::dup2(s.fd, kHigh) != kHigh)
        UNIT_SKIP("no descriptor 3000 allowed here");
    std::vector<unsigned long> words(kHigh / 64 + 1);
    words[kHigh / 64] = 1UL << (kHigh % 64);
    words[static_cast<std::size_t>(s.fd) / 64] |= 1UL << (s.fd % 64);
    auto *const set = reinterpret_cast<fd_set *>(words.data());
    config::g_params.select_poll_os_ratio = 1;
    config::g_params.select_skip_os = 1;
    assert_int_equal(mux::select(kHigh + 1, nullptr, set, nullptr, &kNow, nullptr, nullptr), 2);
    config::g_params = config::Params{};
    ::close(kHigh);
}

void select_tells_the_time_left(void **)
{
    in_every_mode([] {
        const Socket s;
        fd_set in = {};
        timespec left = {7, 7};
        FD_SET(s.fd, &in);
        assert_int_equal(mux::select(s.fd + 1, &in, nullptr, nullptr, &kBrief, nullptr, &left), 0);
        assert_true(left.tv_sec == 0 && left.tv_nsec == 0);
        FD_SET(s.fd, &in);
        fake::deliver(s.fd);
        assert_int_equal(mux::select(s.fd + 1, &in, nullptr, nullptr, &kLong, nullptr, &left), 1);
        assert_true(left.tv_sec > 0 && left.tv_sec <= kLong.tv_sec);
    });
}

void select_is_not_ended_by_an_unasked_hang_up(void **)
{
    in_every_mode([] {
        const Socket offloaded;
        const int plain = fake::open_socket();
        fake::close_peer(offloaded.fd);
        fake::close_peer(plain);
        fd_set err = {};
        FD_SET(offloaded.fd, &err);
        FD_SET(plain, &err);
        const int nfds = std::max(plain, offloaded.fd) + 1;
        assert_int_equal(mux::select(nfds, nullptr, nullptr, &err, &kBrief, nullptr, nullptr), 0);
        err = {};
        FD_SET(plain, &err);
        assert_int_equal(mux::select(nfds, nullptr, nullptr, &err, &kBrief, nullptr, nullptr), 0);
        assert_int_equal(mux::select(nfds, nullptr, nullptr, &err, &kNow, nullptr, nullptr), 0);
        fd_set in = {};
        FD_SET(offloaded.fd, &in);
        FD_SET(plain, &in);
        assert_true(mux::select(nfds, &in, nullptr, nullptr, nullptr, nullptr, nullptr) >= 1);
        fake::close_socket(plain);
    });
}

} // namespace

int main()
{
    vma::libc::resolve_real();
    const CMUnitTest tests[] = {
        cmocka_unit_test(select_over_both_kinds),
        cmocka_unit_test(select_refuses_what_the_kernel_refuses),
        cmocka_unit_test(select_beyond_its_size),
        cmocka_unit_test(select_tells_the_time_left),
        cmocka_unit_test(select_is_not_ended_by_an_unasked_hang_up),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
