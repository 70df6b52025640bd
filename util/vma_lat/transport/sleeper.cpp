// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/transport/sleeper.hpp"

#include "util/vma_lat/clock.hpp"
#include "util/vma_lat/transport/fabric_objects.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>

namespace vma::lat {

namespace {

constexpr std::uint32_t kWake = UINT32_MAX;

Failure watch(const Fd &set, int fd, std::uint32_t number)
{
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = number;
    if (epoll_ctl(set.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        return system_error("epoll_ctl");
    return {};
}

} // namespace

Failure Sleeper::open(Model how, fid_fabric *fabric, const std::vector<fid_cq *> &queues)
{
    how_ = how;
    fabric_ = fabric;
    for (fid_cq *queue : queues) {
        all_.push_back(static_cast<std::uint32_t>(all_.size()));
        queues_.push_back(&queue->fid);
    }
    ready_ = all_;
    wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_)
        return system_error("eventfd");
    if (how == Model::kPoll)
        return {};
    if (how == Model::kEpoll) {
        epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
        if (!epoll_)
            return system_error("epoll_create1");
        if (auto failure = watch(epoll_, wake_.get(), kWake))
            return failure;
        events_.resize(std::min<std::size_t>(queues_.size() + 1, 64));
    }
    for (const std::uint32_t number : all_) {
        int fd = -1;
        if (const int result = fi_control(queues_[number], FI_GETWAIT, &fd); result != 0)
            return fabric_error("the completion queue's descriptor", result);
        channel_ = fd;
        if (how == Model::kEpoll) {
            if (auto failure = watch(epoll_, fd, number))
                return failure;
        }
    }
    return {};
}

void Sleeper::wake()
{
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

void Sleeper::take_wake()
{
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = read(wake_.get(), &count, sizeof count);
}

void Sleeper::sleep()
{
    constexpr unsigned kPatience = 256; // looks that find nothing, after which another thread of this CPU may run
    if (how_ == Model::kPoll) {
        if (++idle_ % kPatience == 0)
            sched_yield();
        return;
    }
    ready_ = all_;
    if (fi_trywait(fabric_, queues_.data(), static_cast<int>(queues_.size())) != 0)
        return;
    if (how_ == Model::kEpoll)
        sleep_in_epoll();
    else
        sleep_in_poll();
}

void Sleeper::sleep_in_poll()
{
    pollfd fds[] = {{channel_, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (poll(fds, 2, kTickMs) > 0 && fds[1].revents != 0)
        take_wake();
}

void Sleeper::sleep_in_epoll()
{
    ready_.clear();
    const int count = epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), kTickMs);
    for (int i = 0; i < count; ++i) {
        const std::uint32_t number = events_[static_cast<std::size_t>(i)].data.u32;
        if (number == kWake)
            take_wake();
        else
            ready_.push_back(number);
    }
}

} // namespace vma::lat
