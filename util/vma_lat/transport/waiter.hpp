// SPDX-License-Identifier: BSD-2-Clause
// One set of descriptors to wait for, through select, poll or epoll. Nothing but the wait differs, so that results
// can be compared.
#pragma once

#include "util/vma_lat/address.hpp"
#include "util/vma_lat/clock.hpp"
#include "util/vma_lat/measure/plan.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <cstdint>
#include <vector>

namespace vma::lat {

class Waiter
{
public:
    Failure open(Wait how);
    Failure add(int fd);        // as descriptor number 0, 1, 2 ...
    std::uint32_t next_ready(); // number of a readable one, kNobody after kTickMs or a signal
    static constexpr std::uint32_t kNobody = UINT32_MAX;

private:
    void wait();
    void wait_select();
    void wait_poll();
    void wait_epoll();

    Wait how_ = Wait::kPoll;
    std::vector<pollfd> fds_;
    fd_set select_set_{};
    int highest_ = -1;
    Fd epoll_;
    std::vector<epoll_event> events_;
    std::vector<std::uint32_t> ready_;
    std::size_t next_ = 0;
};

} // namespace vma::lat
