// SPDX-License-Identifier: BSD-2-Clause
// A thread that is about to wait, while another one that reads the queue has lost its processor: it gives its own away,
// as the other one may need just that, by whichever call it waits. Whether it does is the kernel's word on its state.
#include "fabtests/unit.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "compat/src/engine/objects.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/tcp/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

enum class Way { kReceive, kPoll, kEpoll };

char state_of(pid_t task)
{
    char path[64];
    char text[512] = {};
    std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", task);
    std::FILE *const file = std::fopen(path, "re");
    assert_non_null(file);
    static_cast<void>(std::fread(text, 1, sizeof text - 1, file));
    std::fclose(file);
    const char *const end_of_name = std::strrchr(text, ')');
    assert_non_null(end_of_name);
    return end_of_name[2];
}

void wait_by(Way way, const End &end, int set)
{
    pollfd one = {end.fd, POLLIN, 0};
    epoll_event event = {};
    if (way == Way::kPoll)
        assert_int_equal(mux::poll(&one, 1, nullptr, nullptr), 1);
    if (way == Way::kEpoll)
        assert_int_equal(mux::epoll_wait(set, &event, 1, nullptr, nullptr), 1);
}

void sleeps_while_another_reads(Way way)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    const int set = mux::epoll_created(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event = {};
    event.events = EPOLLIN;
    assert_int_equal(mux::epoll_control(set, EPOLL_CTL_ADD, pair.b.fd, &event), 0);
    sock::engine_exclude_polling(true); // as who reads, and is not let go on
    send_some(pair.a, 64);
    std::atomic<pid_t> task{0};
    std::thread waiter([&] {
        task = static_cast<pid_t>(::syscall(SYS_gettid));
        wait_by(way, pair.b, set);
        receive_some(pair.b, pair.a, 64, 0);
    });
    while (task == 0 || state_of(task) != 'S')
        ::sched_yield();
    sock::engine_exclude_polling(false);
    waiter.join();
    assert_int_equal(pair.b.received, pair.a.sent);
    mux::epoll_closed(set);
    ::close(set);
}

void a_receive(void **)
{
    sleeps_while_another_reads(Way::kReceive);
}

void a_poll(void **)
{
    sleeps_while_another_reads(Way::kPoll);
}

void an_epoll_wait(void **)
{
    sleeps_while_another_reads(Way::kEpoll);
}

} // namespace

int main()
{
    ::setenv("VMA_RX_POLL", "0", 1);
    ::setenv("VMA_SELECT_POLL", "0", 1);
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(a_receive),
        cmocka_unit_test(a_poll),
        cmocka_unit_test(an_epoll_wait),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
