// SPDX-License-Identifier: BSD-2-Clause
// Calls that wait for several descriptors. See actor.hpp.
#include "fabtests/sockets/programs/compared/actor.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace compared {

namespace {

Reply poll_slots(const Command &command)
{
    std::array<pollfd, kItems> polled{};
    for (std::size_t i = 0; i < static_cast<std::size_t>(command.count); ++i)
        polled[i] = {fd_of(command.items[i].slot), static_cast<short>(command.items[i].events), 0};
    Reply reply = outcome(::poll(polled.data(), static_cast<nfds_t>(command.count), static_cast<int>(command.value)));
    reply.count = command.count;
    for (std::size_t i = 0; i < static_cast<std::size_t>(command.count); ++i)
        reply.items[i] = {command.items[i].slot, static_cast<std::uint16_t>(polled[i].revents)};
    return reply;
}

Reply select_slots(const Command &command)
{
    fd_set sets[3];
    for (fd_set &set : sets)
        FD_ZERO(&set);
    int most = -1;
    for (std::size_t i = 0; i < static_cast<std::size_t>(command.count); ++i) {
        const int fd = fd_of(command.items[i].slot);
        for (unsigned set = 0; set < 3 && fd >= 0; ++set)
            if ((command.items[i].events & (1U << set)) != 0)
                FD_SET(fd, &sets[set]);
        most = std::max(most, fd);
    }
    timeval time{0, static_cast<suseconds_t>(command.value * 1000)};
    Reply reply = outcome(::select(most + 1, &sets[0], &sets[1], &sets[2], command.value < 0 ? nullptr : &time));
    reply.count = command.count;
    for (std::size_t i = 0; i < static_cast<std::size_t>(command.count); ++i) {
        const int fd = fd_of(command.items[i].slot);
        reply.items[i].slot = command.items[i].slot;
        for (unsigned set = 0; set < 3 && fd >= 0 && reply.result >= 0; ++set)
            reply.items[i].events |= FD_ISSET(fd, &sets[set]) ? 1U << set : 0;
    }
    return reply;
}

Reply control(const Command &command)
{
    epoll_event event{};
    event.events = static_cast<std::uint32_t>(command.value);
    event.data.u64 = static_cast<std::uint64_t>(command.flags);
    return outcome(::epoll_ctl(fd_of(command.slot), command.form, fd_of(command.other), &event));
}

Reply wait_set(const Command &command)
{
    std::array<epoll_event, kItems> events{};
    Reply reply = outcome(::epoll_wait(fd_of(command.slot), events.data(), static_cast<int>(command.length),
                                       static_cast<int>(command.value)));
    for (std::int64_t i = 0; i < reply.result; ++i) {
        const epoll_event &event = events[static_cast<std::size_t>(i)];
        reply.items[static_cast<std::size_t>(reply.count++)] = {static_cast<int>(event.data.u64), event.events};
    }
    std::sort(reply.items.begin(), reply.items.begin() + reply.count, [](const Item &one, const Item &other) {
        return one.slot < other.slot || (one.slot == other.slot && one.events < other.events);
    });
    return reply;
}

Reply new_set(const Command &command)
{
    const int fd = ::epoll_create1(0);
    const Reply reply = outcome(fd < 0 ? -1 : 0);
    if (fd >= 0)
        set_slot(command.other, fd);
    return reply;
}

} // namespace

Reply do_waits(const Command &command)
{
    switch (command.op) {
    case Op::kPoll:
        return poll_slots(command);
    case Op::kSelect:
        return select_slots(command);
    case Op::kNewSet:
        return new_set(command);
    case Op::kControl:
        return control(command);
    case Op::kWaitSet:
        return wait_set(command);
    default:
        return outcome(::usleep(static_cast<useconds_t>(command.value)));
    }
}

} // namespace compared
