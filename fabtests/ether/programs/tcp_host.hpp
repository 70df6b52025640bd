// SPDX-License-Identifier: BSD-2-Clause
// The user-space TCP on a port, without libfabric, for the programs of this folder.
#pragma once

#include <memory>
#include <string>

#include "ether/net_if.hpp"

namespace fabtest {

using vma::ether::now_ns;

// Each dies with a word if the text is wrong.
vma::inet::Endpoint endpoint(const std::string &address, const std::string &port);
void set(vma::inet::TcpSettings &settings,
         const std::string &text); // "NAME=VALUE", e.g. "sack=0", "keepalive_idle=500" (ms)

// The byte of a test's stream at a place; lib/tcp.py has the same.
inline std::uint8_t byte_at(std::uint64_t position)
{
    return static_cast<std::uint8_t>(position * 7 + (position >> 8) + (position >> 16) * 31);
}

class TcpHost
{
public:
    explicit TcpHost(const char *interface, const vma::ether::NicOptions &nic = {}); // dies where it can't be opened

    vma::ether::NetIf &net_if() { return *net_if_; }
    vma::inet::Stack &stack() { return net_if_->stack(); }
    vma::inet::Tcp &tcp() { return net_if_->tcp(); }
    vma::ether::Flows &flows() { return net_if_->flows(); }

    // Takes what has come, sends what there is to send. True: there was something.
    bool turn() { return net_if_->turn(); }

    // Sleeps until a frame, a change of the network, a timer, or `input` (-1: none) has something.
    void wait(int input = -1);

private:
    std::unique_ptr<vma::ether::NetIf> net_if_;
};

} // namespace fabtest
