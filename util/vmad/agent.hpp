// SPDX-License-Identifier: BSD-2-Clause
// The daemon of VMA's agent protocol: processes tell it of their TCP connections by datagrams, and when one ends
// without a word, the peers of those that were open are made to end them. Its descriptors are in a set of its own.
#pragma once

#include <map>
#include <string>
#include <sys/types.h>
#include <sys/un.h>

#include "agent_message.hpp"
#include "core/fd.hpp"
#include "notify_dir.hpp"
#include "prober.hpp"

namespace vma::guard {

struct AgentOptions {
    std::string socket = "/var/run/vma_agent.sock"; // empty: there is no such daemon
    std::string folder = "/tmp/vma";
    std::string lock = "/var/lock/vmad.lock"; // held while it runs
    std::uint32_t most_processes = 1024;
    std::uint32_t most_open = 65536; // connections of a process
    Prober::Settings prober;
};

class Agent
{
public:
    explicit Agent(const AgentOptions &options) : options_(options), prober_(options.prober) {}
    Agent(const Agent &) = delete;
    Agent &operator=(const Agent &) = delete;
    ~Agent(); // the socket's path is gone

    // An empty text, or what went wrong.
    std::string open();
    int fd() const { return set_.get(); } // readable: on_readable() has something to do
    void on_readable(Nanos now);
    Nanos due() const; // CLOCK_MONOTONIC, when on_time() is wanted; kNever
    void on_time(Nanos now);

private:
    struct Process {
        core::UniqueFd pidfd;                // alone says that it has ended: its files anybody may open and close
        std::map<std::uint32_t, Pair4> open; // established connections by fid
        bool full_told = false;
    };
    using Processes = std::map<pid_t, Process>;

    std::string open_socket();
    std::string take_lock();
    bool watch(int fd, std::uint64_t what);
    void receive(Nanos now);
    void take(const AgentMessage &message, const sockaddr_un &from, unsigned length, Nanos now);
    void take_init(const AgentMessage &message, const sockaddr_un &from, unsigned length, Nanos now);
    void take_state(const AgentMessage &message);
    void take_flow(const AgentMessage &message, const sockaddr_un &from, unsigned length);
    bool answer(const void *data, std::size_t size, const sockaddr_un &to, unsigned length);
    void on_death(Processes::iterator process, Nanos now);
    void forget(Processes::iterator process);
    void follow_prober();
    void complain(pid_t pid, const char *why, Nanos now);

    AgentOptions options_;
    core::UniqueFd set_; // epoll
    core::UniqueFd lock_;
    core::UniqueFd socket_;
    std::string bound_; // the path that is ours
    NotifyDir folder_;
    Prober prober_;
    unsigned watched_prober_ = 0; // which of its sockets
    Processes processes_;
    std::size_t open_ = 0; // connections of all of them
    bool flow_told_ = false;
    Nanos complained_ = 0;
    unsigned held_back_ = 0; // complaints
};

} // namespace vma::guard
