// SPDX-License-Identifier: BSD-2-Clause
// The process's side of vmad, the guardian (man/vmad.8): it is told of each connection, and has the peers of those that
// a process leaves behind reset. Without one all of this does nothing, and the kernel resets a peer that says
// something.
#pragma once

#include <cstdint>

#include "core/fd.hpp"
#include "ether/guardian_message.hpp"
#include "inet/tcp/connection.hpp"

namespace vma::ether {

// Not thread-safe. Nothing here waits, and nothing fails: a connection that can't be told is not guarded.
class Guardian
{
public:
    // Once, by a thread in the network namespace of the NIC. Who listens must be root's or of this user: he gets raw
    // sockets.
    void connect() noexcept;
    // It is established. `stamp`: our time stamp now.
    void add(const inet::Connection &connection, std::uint32_t stamp) noexcept;
    void remove(const inet::Flow &flow) noexcept; // one that was never added, too
    void forget() noexcept;                       // all of them

private:
    int open(const char *path) noexcept;
    int greet() noexcept;
    bool send(const GuardianMessage &message) noexcept;

    core::UniqueFd socket_;
    std::uint64_t missed_ = 0; // messages that found the socket full
};

} // namespace vma::ether
