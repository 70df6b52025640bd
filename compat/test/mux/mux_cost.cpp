// SPDX-License-Identifier: BSD-2-Clause
// What the multiplexers cost a call, over fake sockets: no data moves, so all that is measured is theirs (and a fake
// engine's lock). Not a test. Prints nanoseconds a call, the median of many short rounds.
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "compat/src/base/clock.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/fake_socket.hpp"

namespace {

using namespace vma;

constexpr int kRounds = 201;
constexpr int kCalls = 1000;
constexpr timespec kNow = {0, 0};

template <typename Call> void measure(const char *name, Call call)
{
    std::array<double, kRounds> rounds;
    for (double &round : rounds) {
        const std::int64_t start = mux::now_ns();
        for (int i = 0; i < kCalls; ++i)
            call();
        round = static_cast<double>(mux::now_ns() - start) / kCalls;
    }
    std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
    printf("%-72s %8.1f\n", name, rounds[kRounds / 2]);
}

void add(int epfd, int fd, std::uint32_t events)
{
    epoll_event event = {};
    event.events = events;
    event.data.fd = fd;
    mux::epoll_control(epfd, EPOLL_CTL_ADD, fd, &event);
}

int wait(int epfd)
{
    epoll_event events[64];
    return mux::epoll_wait_ms(epfd, events, 64, 0, nullptr);
}

void kernel_only_sets()
{
    const int bare = ::epoll_create1(EPOLL_CLOEXEC);
    const int plain = fake::open_set();
    const int tracked = fake::open_set();
    int pipe_fds[2];
    if (::pipe2(pipe_fds, O_CLOEXEC) != 0)
        return;
    epoll_event event = {};
    event.events = EPOLLIN;
    ::epoll_ctl(bare, EPOLL_CTL_ADD, pipe_fds[0], &event);
    add(plain, pipe_fds[0], EPOLLIN);
    add(tracked, fake::open_socket(), EPOLLIN);
    measure("kernel's epoll_wait, one pipe, nothing ready", [bare] {
        epoll_event events[64];
        ::epoll_wait(bare, events, 64, 0);
    });
    measure("ours, one pipe, nothing ready", [plain] { wait(plain); });
    measure("ours, one kernel-only tracked socket, nothing ready", [tracked] { wait(tracked); });
}

void offloaded_sets(int idle)
{
    const int epfd = fake::open_set();
    std::vector<int> sockets;
    for (int i = 0; i < idle; ++i) {
        sockets.push_back(fake::open_socket());
        add(epfd, sockets.back(), EPOLLIN);
        fake::offload(sockets.back());
    }
    char name[80];
    snprintf(name, sizeof name, "ours, %d idle offloaded sockets, nothing ready (asks the kernel)", idle);
    measure(name, [epfd] { wait(epfd); });
    fake::deliver(sockets.front());
    snprintf(name, sizeof name, "ours, %d offloaded sockets, one ready (asks the kernel each 10th time)", idle);
    measure(name, [epfd] { wait(epfd); });
    pollfd entry = {sockets.front(), POLLIN, 0};
    if (idle == 1) {
        measure("poll, one offloaded socket, ready", [&entry] { mux::poll(&entry, 1, &kNow, nullptr); });
        epoll_event event = {};
        event.events = EPOLLIN | EPOLLOUT;
        measure("EPOLL_CTL_MOD of an offloaded socket",
                [&] { mux::epoll_control(epfd, EPOLL_CTL_MOD, sockets.front(), &event); });
    }
}

void raise_limit(rlim_t wanted)
{
    rlimit limit = {};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < wanted) {
        limit = {wanted, std::max(wanted, limit.rlim_max)}; // the latter only as root
        if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
            perror("RLIMIT_NOFILE");
    }
}

constexpr int kCounted = 200;

} // namespace

// Of this name so that callgrind can be told to count in it alone.
extern "C" [[gnu::noinline]] int counted_waits(int epfd)
{
    int reported = 0;
    for (int i = 0; i < kCounted; ++i)
        reported += wait(epfd);
    return reported;
}

// mux_cost COUNT READY: kCounted waits on a set of so many offloaded sockets, of which so many are ready, for
// fabtests/sockets/test_wait_cost.py.
static int count_waits(int count, int ready)
{
    const int epfd = fake::open_set();
    raise_limit(2 * static_cast<rlim_t>(count) + 100); // both ends
    for (int i = 0; i < count; ++i) {
        const int fd = fake::open_socket();
        if (fd < 0)
            return 1;
        add(epfd, fd, EPOLLIN);
        fake::offload(fd);
        if (i < ready)
            fake::deliver(fd);
    }
    wait(epfd); // what came with the sockets
    printf("%d waits reported %d\n", kCounted, counted_waits(epfd));
    return 0;
}

int main(int argc, char **argv)
{
    libc::resolve_real();
    fake::g_quiet_kernel = true;
    if (argc == 3)
        return count_waits(atoi(argv[1]), atoi(argv[2]));
    kernel_only_sets();
    offloaded_sets(1);
    offloaded_sets(1000);
    return 0;
}
