// SPDX-License-Identifier: BSD-2-Clause
// A process beside another, threads each with a context of its own, signals.
#ifndef FABTESTS_POSIX_PROGRAMS_ASIO_PROCESSES_HPP
#define FABTESTS_POSIX_PROGRAMS_ASIO_PROCESSES_HPP

#include "fabtests/posix/programs/asio/streams.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

namespace cases {

// Ends with 0 where nothing was thrown.
template <typename Work> [[noreturn]] void be_child(Work work)
{
    try {
        work();
        ::_exit(0);
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "child: %s\n", failure.what());
        ::_exit(1);
    }
}

inline void expect_end(pid_t child)
{
    int status = 0;
    expect(::waitpid(child, &status, 0) == child && status == 0, "the child's status " + std::to_string(status));
}

// The child serves what the parent had accepted; each has its own epoll set then, which Asio makes.
inline void forked()
{
    asio::io_context context;
    Pair pair = talked(context);
    Pair other = connected(context);
    context.notify_fork(asio::io_context::fork_prepare);
    const pid_t child = ::fork();
    if (child == 0) {
        be_child([&] {
            context.notify_fork(asio::io_context::fork_child);
            pair.client.close();
            std::make_shared<Echo>(std::move(pair.server))->read();
            run(context);
        });
    }
    expect(child > 0, "fork");
    context.notify_fork(asio::io_context::fork_parent);
    pair.server.close();
    for (int number = 0; number < kMany; ++number) {
        const std::string there = "for the child " + std::to_string(number);
        std::string back(there.size(), ' ');
        asio::write(pair.client, asio::buffer(there));
        asio::async_read(pair.client, asio::buffer(back),
                         [](error_code code, std::size_t) { expect_success(code, "read"); });
        run(context);
        expect(back == there, back);
    }
    exchange(other.client, other.server);
    pair.client.close();
    expect_end(child);
}

// Connections between two processes, several threads in each.
inline void another_process()
{
    asio::io_context context;
    tcp::acceptor acceptor(context, loopback());
    const tcp::endpoint at = acceptor.local_endpoint();
    const int listener = acceptor.release();
    const pid_t child = ::fork();
    if (child == 0) {
        be_child([&] {
            asio::io_context own;
            tcp::acceptor inherited(own, tcp::v4(), listener);
            accept_some(inherited, 12);
            run(own, 3);
        });
    }
    expect(child > 0, "fork");
    ::close(listener);
    std::atomic<int> ended{0};
    for (int number = 0; number < 12; ++number)
        std::make_shared<Asker>(context, 2 * kMany, ended)->connect(at);
    run(context, 3);
    expect(ended == 12, std::to_string(ended) + " clients have ended");
    expect_end(child);
}

inline void accept_for(tcp::acceptor &acceptor, asio::io_context *contexts, int count)
{
    if (count == 0)
        return;
    acceptor.async_accept(contexts[count % 3], [=, &acceptor](error_code code, tcp::socket socket) {
        expect_success(code, "accept");
        const auto echo = std::make_shared<Echo>(std::move(socket));
        asio::post(contexts[count % 3], [echo] { echo->read(); });
        accept_for(acceptor, contexts, count - 1);
    });
}

// One context accepts for three others, each of which has its own thread.
inline void context_of_each_thread()
{
    constexpr int kConnections = 30;
    asio::io_context context;
    std::array<asio::io_context, 3> contexts;
    tcp::acceptor acceptor(context, loopback());
    accept_for(acceptor, contexts.data(), kConnections);
    std::atomic<int> ended{0};
    for (int number = 0; number < kConnections; ++number)
        std::make_shared<Asker>(context, kMany, ended)->connect(acceptor.local_endpoint());
    std::vector<std::jthread> threads;
    std::atomic<int> failed{0};
    std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards;
    for (asio::io_context &one : contexts)
        guards.push_back(asio::make_work_guard(one));
    for (asio::io_context &one : contexts) {
        threads.emplace_back([&one, &failed] {
            try {
                run(one);
            } catch (const std::exception &) {
                ++failed;
            }
        });
    }
    run(context);
    guards.clear();
    for (std::jthread &thread : threads)
        thread.join();
    expect(ended == kConnections && failed == 0, std::to_string(ended) + " clients have ended");
}

// Handlers of signals write to Asio's pipe, and interrupt what waits, while connections talk.
inline void signals()
{
    asio::io_context context;
    tcp::acceptor acceptor(context, loopback());
    std::atomic<int> ended{0};
    accept_some(acceptor, 4);
    for (int number = 0; number < 4; ++number)
        std::make_shared<Asker>(context, 2 * kMany, ended)->connect(acceptor.local_endpoint());
    asio::signal_set set(context, SIGUSR1);
    int heard = 0;
    std::function<void(error_code, int)> hear = [&](error_code code, int) {
        expect_success(code, "signal");
        if (++heard == kMany)
            return;
        ::kill(::getpid(), SIGUSR1);
        set.async_wait(hear);
    };
    set.async_wait(hear);
    ::kill(::getpid(), SIGUSR1);
    run(context, 3);
    expect(ended == 4 && heard == kMany, std::to_string(heard) + " signals");
}

} // namespace cases

#endif
