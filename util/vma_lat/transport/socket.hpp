// SPDX-License-Identifier: BSD-2-Clause
// Messages over UDP and TCP sockets. A TCP message has no frame of its own: all messages of a test are equally long.
#pragma once

#include "util/vma_lat/transport/transport.hpp"
#include "util/vma_lat/transport/waiter.hpp"

#include <vector>

namespace vma::lat {

class SocketTransport final : public Transport
{
public:
    SocketTransport(const Plan &plan, const Local &local);

    Failure prepare(Places &mine) override;
    Failure establish(const Places &theirs, const std::function<bool()> &given_up) override;
    Got send(std::uint32_t channel, std::span<const std::byte> message) override;
    Got receive(Arrival &arrival) override;
    std::vector<int> sockets() const override;

private:
    struct Channel {
        Fd listener; // TCP server, until it is connected
        Fd fd;
        Address peer;                  // UDP that isn't connected: where to send
        std::vector<std::byte> buffer; // UDP: only of the first, it is for all
        std::size_t begin = 0;         // TCP: what was received and not handed out
        std::size_t end = 0;
        bool ended = false;
    };

    bool stream() const { return plan_.kind == Kind::kTcp; }

    Failure open_server(Channel &channel, std::uint32_t number, std::uint16_t &port);
    Failure open_client(Channel &channel, std::uint16_t port);
    Failure accept_one(Channel &channel, const std::function<bool()> &given_up);
    Failure group_address(std::uint16_t port, Address &group, unsigned &interface);
    Failure join(int fd, const Address &group, unsigned interface);
    Failure send_to_group(Channel &channel, const Address &group, unsigned interface);
    Failure make_ready(Channel &channel);

    Got spin(Arrival &arrival);
    Got read(std::uint32_t number, Arrival &arrival);
    Got read_datagram(std::uint32_t number, Arrival &arrival);
    Got read_stream(std::uint32_t number, Arrival &arrival);
    bool take_whole(std::uint32_t number, Arrival &arrival);

    Plan plan_;
    Local local_;
    std::vector<Channel> channels_;
    Waiter waiter_;
    std::uint32_t current_ = 0; // TCP: whose buffer may hold more messages
    std::uint32_t spin_next_ = 0;
    std::size_t ended_ = 0;
};

} // namespace vma::lat
