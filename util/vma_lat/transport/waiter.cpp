// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/transport/waiter.hpp"

#include <algorithm>

namespace vma::lat {

Failure Waiter::open(Wait how)
{
    how_ = how;
    FD_ZERO(&select_set_);
    if (how == Wait::kEpoll) {
        epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
        if (!epoll_)
            return system_error("epoll_create1");
    }
    return {};
}

Failure Waiter::add(int fd)
{
    if (how_ == Wait::kSelect && fd >= FD_SETSIZE)
        return error(kExitUsage, "select takes descriptors below %d, and this one is %d: use fewer --sockets, or epoll",
                     FD_SETSIZE, fd);
    const auto number = static_cast<std::uint32_t>(fds_.size());
    fds_.push_back({fd, POLLIN, 0});
    events_.resize(std::min<std::size_t>(fds_.size(), 256));
    ready_.reserve(fds_.size());
    if (how_ == Wait::kSelect)
        FD_SET(fd, &select_set_);
    highest_ = std::max(highest_, fd);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = number;
    if (how_ == Wait::kEpoll && epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        return system_error("epoll_ctl");
    return {};
}

std::uint32_t Waiter::next_ready()
{
    if (next_ == ready_.size()) {
        ready_.clear();
        next_ = 0;
        wait();
        if (ready_.empty())
            return kNobody;
    }
    return ready_[next_++];
}

void Waiter::wait()
{
    if (how_ == Wait::kSelect)
        wait_select();
    else if (how_ == Wait::kEpoll)
        wait_epoll();
    else
        wait_poll();
}

void Waiter::wait_select()
{
    fd_set set = select_set_;
    timeval limit{0, kTickMs * 1000L};
    int left = select(highest_ + 1, &set, nullptr, nullptr, &limit);
    for (std::uint32_t i = 0; left > 0 && i < fds_.size(); ++i) {
        if (FD_ISSET(fds_[i].fd, &set)) {
            ready_.push_back(i);
            --left;
        }
    }
}

void Waiter::wait_poll()
{
    int left = poll(fds_.data(), fds_.size(), kTickMs);
    for (std::uint32_t i = 0; left > 0 && i < fds_.size(); ++i) {
        if (fds_[i].revents != 0) {
            ready_.push_back(i);
            --left;
        }
    }
}

void Waiter::wait_epoll()
{
    const int count = epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), kTickMs);
    for (int i = 0; i < count; ++i)
        ready_.push_back(events_[static_cast<std::size_t>(i)].data.u32);
}

} // namespace vma::lat
