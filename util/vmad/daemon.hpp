// SPDX-License-Identifier: BSD-2-Clause
// The guardian's loop: processes that come, what they say, their deaths, until a signal ends it.
#pragma once

#include <list>
#include <string>

#include "agent.hpp"
#include "client.hpp"
#include "listener.hpp"

namespace vma::guard {

class Daemon
{
public:
    explicit Daemon(const AgentOptions &agent) : agent_(agent) {}

    // An empty text, or what went wrong. From here on SIGTERM and SIGINT wait for run(). `path`: the guardian's socket.
    std::string open(const char *path);
    void run(); // until SIGTERM or SIGINT

private:
    using Clients = std::list<Client>;

    bool watch(int fd, void *what);
    int timeout(Nanos now) const;
    bool turn(); // false: it is to end
    void accept_all(Nanos now);
    void admit(core::UniqueFd socket);
    void on_client(Clients::iterator client, Client::Outcome outcome, int watched_before);
    void on_time(Nanos now);
    void pause(Nanos now);

    Listener listener_;
    Agent agent_;
    core::UniqueFd signals_;
    core::UniqueFd set_; // epoll
    Totals totals_;
    Clients clients_;
    Nanos paused_until_ = inet::kNever; // kNever: the listener is watched
};

} // namespace vma::guard
