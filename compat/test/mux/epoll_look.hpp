// SPDX-License-Identifier: BSD-2-Clause
// Calls on an epoll set as the tests make them, and what a look at it finds.
#pragma once

#include "fabtests/unit.hpp"

#include <errno.h>
#include <sys/epoll.h>

#include <map>
#include <vector>

#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/fake_socket.hpp"

namespace epoll_look {

using namespace vma;

constexpr timespec kNow = {0, 0};
constexpr std::uint32_t kIn = EPOLLIN;

inline int control(int epfd, int op, int fd, std::uint32_t events, std::uint64_t data)
{
    epoll_event event = {};
    event.events = events;
    event.data.u64 = data;
    return mux::epoll_control(epfd, op, fd, &event) == 0 ? 0 : -errno;
}

inline int add(int epfd, int fd, std::uint32_t events)
{
    return control(epfd, EPOLL_CTL_ADD, fd, events, static_cast<std::uint64_t>(fd));
}

inline int modify(int epfd, int fd, std::uint32_t events)
{
    return control(epfd, EPOLL_CTL_MOD, fd, events, static_cast<std::uint64_t>(fd));
}

using Events = std::map<std::uint64_t, std::uint32_t>;

inline Events look(int epfd, int max = 64)
{
    std::vector<epoll_event> events(static_cast<std::size_t>(max));
    const int n = mux::epoll_wait(epfd, events.data(), max, &kNow, nullptr);
    assert_true(n >= 0);
    Events result;
    for (int i = 0; i < n; ++i) {
        const epoll_event &event = events[static_cast<std::size_t>(i)];
        const std::uint64_t whose = event.data.u64; // packed: nothing refers to it
        assert_int_equal(result.count(whose), 0);   // nobody twice
        result[whose] = event.events;
    }
    return result;
}

inline Events just(int fd, std::uint32_t events)
{
    return {{static_cast<std::uint64_t>(fd), events}};
}

// An offloaded socket in a set.
struct One {
    explicit One(std::uint32_t events) : epfd(fake::open_set()), fd(fake::open_socket())
    {
        assert_int_equal(add(epfd, fd, events), 0);
        assert_true(fake::offload(fd));
    }
    ~One()
    {
        fake::close_socket(fd);
        fake::close_set(epfd);
    }
    One(const One &) = delete;
    One &operator=(const One &) = delete;
    const int epfd;
    const int fd;
};

inline void drain(int fd)
{
    while (fake::consume(fd)) {
    }
}

#define ASSERT_EVENTS(epfd, ...) assert_true(look(epfd) == (__VA_ARGS__))
#define ASSERT_NOTHING(epfd) assert_true(look(epfd).empty())

} // namespace epoll_look
