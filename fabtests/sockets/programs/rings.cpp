// SPDX-License-Identifier: BSD-2-Clause
// Connections that several threads of one process use, for test_rings.py: which rings they are on is in the log. All
// ends are in this process.
//   rings threads N TIMES      each of N threads talks over a connection of its own
//   rings wait HOW N TIMES     N connections made by as many threads; then one thread answers on all by poll, select, epoll or nested
//   rings option LOGIC N       as `threads`, with SO_VMA_RING_ALLOC_LOGIC
//   rings move                 a second thread takes the connection over, and uses it until stdin ends
//   rings fork                 a child is forked between two talks
//   rings pinned               tells whether a thread may run on one processor only, before and after
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/peer.hpp"
#include <mellanox/vma_extra.h>

using namespace fabtest;

namespace {

constexpr int kNotSet = -1;

void set_logic(int fd, int logic)
{
    vma_ring_alloc_logic_attr wanted{};
    wanted.comp_mask = VMA_RING_ALLOC_MASK_RING_INGRESS;
    wanted.ring_alloc_logic = static_cast<ring_logic_t>(logic);
    wanted.ingress = 1;
    must(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &wanted, sizeof wanted), "SO_VMA_RING_ALLOC_LOGIC");
}

Ends accelerated_by(int logic)
{
    const Ends ends = connected();
    if (logic != kNotSet) {
        set_logic(ends.a, logic);
        set_logic(ends.b, logic);
    }
    accelerate(ends);
    return ends;
}

template <typename Work> void run_threads(int count, Work work)
{
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i)
        threads.emplace_back(work, i);
    for (std::thread &thread : threads)
        thread.join();
}

// All are open at the same time.
std::vector<Ends> make_each(int count, int times, int logic = kNotSet)
{
    std::vector<Ends> all(static_cast<std::size_t>(count));
    pthread_barrier_t made;
    pthread_barrier_init(&made, nullptr, static_cast<unsigned>(count));
    run_threads(count, [&](int i) {
        Ends &ends = all[static_cast<std::size_t>(i)];
        ends = accelerated_by(logic);
        pthread_barrier_wait(&made);
        talk(ends, times);
        pthread_barrier_wait(&made); // a thread's identity may be another's after it
    });
    return all;
}

// Waits until one of the descriptors can be read.
class Waiter
{
public:
    Waiter(const std::string &how, const std::vector<Ends> &all) : how_(how)
    {
        if (how == "epoll" || how == "nested")
            set_ = must(::epoll_create1(0), "epoll_create1");
        polled_.reserve(all.size());
        for (const Ends &ends : all) {
            polled_.push_back({ends.b, POLLIN, 0});
            if (set_ >= 0)
                add(set_, ends.b);
        }
        if (how != "nested")
            return;
        const int outer = must(::epoll_create1(0), "epoll_create1");
        add(outer, set_);
        outer_ = outer;
    }

    std::vector<int> ready()
    {
        if (how_ == "poll")
            return by_poll();
        if (how_ == "select")
            return by_select();
        epoll_event event{};
        if (outer_ >= 0)
            must(::epoll_wait(outer_, &event, 1, -1), "epoll_wait");
        std::vector<epoll_event> events(polled_.size());
        const int n = must(::epoll_wait(set_, events.data(), static_cast<int>(events.size()), outer_ >= 0 ? 0 : -1),
                           "epoll_wait");
        std::vector<int> result;
        for (int i = 0; i < n; ++i)
            result.push_back(events[static_cast<std::size_t>(i)].data.fd);
        return result;
    }

private:
    static void add(int set, int fd)
    {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = fd;
        must(::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
    }
    std::vector<int> by_poll()
    {
        must(::poll(polled_.data(), polled_.size(), -1), "poll");
        std::vector<int> result;
        for (const pollfd &entry : polled_)
            if (entry.revents != 0)
                result.push_back(entry.fd);
        return result;
    }
    std::vector<int> by_select()
    {
        fd_set set;
        FD_ZERO(&set);
        int most = 0;
        for (const pollfd &entry : polled_) {
            FD_SET(entry.fd, &set);
            most = std::max(most, entry.fd);
        }
        must(::select(most + 1, &set, nullptr, nullptr, nullptr), "select");
        std::vector<int> result;
        for (const pollfd &entry : polled_)
            if (FD_ISSET(entry.fd, &set))
                result.push_back(entry.fd);
        return result;
    }

    const std::string how_;
    std::vector<pollfd> polled_;
    int set_ = -1;
    int outer_ = -1;
};

void wait_on_all(const std::string &how, int count, int times)
{
    const std::vector<Ends> all = make_each(count, 10);
    std::thread answers([&] {
        Waiter waiter(how, all);
        for (int left = count * times; left > 0;) {
            for (const int fd : waiter.ready()) {
                unsigned number = 0;
                receive_all(fd, &number, sizeof number);
                send_all(fd, &number, sizeof number);
                --left;
            }
        }
    });
    run_threads(count, [&](int i) {
        for (int round = 0; round < times; ++round)
            exchange(all[static_cast<std::size_t>(i)].a, all[static_cast<std::size_t>(i)].a,
                     static_cast<unsigned>(round));
    });
    answers.join();
}

void move()
{
    const Ends stays = accelerated(); // with this thread, whose ring is in use then
    const Ends ends = accelerated();
    std::puts("moving");
    std::fflush(stdout);
    std::thread([&ends] {
        pollfd input = {STDIN_FILENO, POLLIN, 0};
        do
            talk(ends, 50);
        while (::poll(&input, 1, 0) == 0);
    }).join();
    talk(ends, 50);
    talk(stays, 50);
}

void fork_between()
{
    const Ends ends = accelerated();
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        talk(ends, 1);
        talk(accelerated(), 50);
        _exit(0);
    }
    int status = 0;
    must(::waitpid(child, &status, 0), "waitpid");
    if (status != 0)
        die("the child ended with %d", status);
    talk(ends, 200);
    talk(accelerated(), 50);
}

int processors()
{
    cpu_set_t set;
    must(::sched_getaffinity(0, sizeof set, &set), "sched_getaffinity");
    return CPU_COUNT(&set);
}

void pinned()
{
    const int before = processors();
    accelerated();
    std::printf("processors %d %d\n", before, processors());
}

} // namespace

int main(int argc, char **argv)
{
    const std::string command = argc > 1 ? argv[1] : "";
    if (command == "threads" && argc == 4)
        make_each(std::atoi(argv[2]), std::atoi(argv[3]));
    else if (command == "wait" && argc == 5)
        wait_on_all(argv[2], std::atoi(argv[3]), std::atoi(argv[4]));
    else if (command == "option" && argc == 4)
        make_each(std::atoi(argv[3]), 10, std::atoi(argv[2]));
    else if (command == "move")
        move();
    else if (command == "fork")
        fork_between();
    else if (command == "pinned")
        pinned();
    else
        die("no such command");
    std::puts("done");
    return 0;
}
