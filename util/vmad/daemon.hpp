// SPDX-License-Identifier: BSD-2-Clause
// The guardian's loop: processes that come, what they say, their deaths, until a signal ends it.
#pragma once

#include <list>
#include <string>

#include "agent.hpp"
#include "broker/broker.hpp"
#include "client.hpp"
#include "listener.hpp"

namespace vma::guard {

class Daemon
{
public:
    Daemon(const AgentOptions &agent, const BrokerOptions &broker) : agent_(agent), broker_(broker) {}

    // An empty text, or what went wrong. From here on SIGTERM and SIGINT wait for run(). `path`: the guardian's socket.
    std::string open(const char *path);
    bool has_broker() const { return broker_.fd() >= 0; }
    void run(); // until SIGTERM or SIGINT

private:
    using Clients = std::list<Client>;

    bool watch(int fd, void *what);
    bool is_to_end();
    int timeout(Nanos now) const;
    bool turn(); // false: it is to end
    void accept_waiting(Nanos now);
    void admit(core::UniqueFd socket);
    void on_client(Clients::iterator client, Client::Outcome outcome, int watched_before);
    void on_time(Nanos now);
    void pause(Nanos now, int error);

    Listener listener_;
    Agent agent_;
    Broker broker_;
    core::UniqueFd signals_;
    core::UniqueFd set_; // epoll
    Totals totals_;
    Clients clients_;
    Nanos paused_until_ = inet::kNever; // kNever: the listener is watched
};

} // namespace vma::guard
