// SPDX-License-Identifier: BSD-2-Clause
// The three ways to wait for completions: to poll without end, to sleep on the descriptor of one queue (its completion
// channel), and one epoll set over many queues. Nothing but the wait differs, so that they can be compared.
#pragma once

#include "util/vma_lat/address.hpp"
#include "util/vma_lat/measure/step.hpp"
#include "util/vma_lat/transport/libfabric.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include <sys/epoll.h>

#include <vector>

namespace vma::lat {

class Sleeper
{
public:
    // For one thread. `queues` stay open as long as this. Another thread ends a sleep by wake().
    Failure open(Model how, fid_fabric *fabric, const std::vector<fid_cq *> &queues);

    // Sleeps until a queue may have something, wake(), kTickMs or a signal. Not at all where that would lose an event.
    void sleep();
    void wake();

    // All queues are to be read next, whatever a sleep said.
    void look_at_all() { ready_ = all_; }

    // What to read after it: numbers of queues.
    const std::vector<std::uint32_t> &ready() const { return ready_; }

private:
    void sleep_in_poll();
    void sleep_in_epoll();
    void take_wake();

    Model how_ = Model::kPoll;
    fid_fabric *fabric_ = nullptr;
    std::vector<fid *> queues_;
    std::vector<std::uint32_t> all_;
    std::vector<std::uint32_t> ready_;
    std::vector<epoll_event> events_;
    Fd epoll_;
    Fd wake_;
    int channel_ = -1; // the queue's
    unsigned idle_ = 0;
};

} // namespace vma::lat
