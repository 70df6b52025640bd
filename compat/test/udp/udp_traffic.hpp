// SPDX-License-Identifier: BSD-2-Clause
// Traffic of several threads between UDP sockets, of which every datagram is accounted for: that it came, once, and
// whole. It holds no case; what is done beside the traffic is the tests'.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "compat/test/udp/udp_socket.hpp"

namespace vma::test {

inline constexpr std::uint32_t kEach = 600; // datagrams of a sender
inline constexpr int kWindow = 12;          // of a sender

// ---- what several senders send to one socket, and what became of it

struct Flow {
    Window window{kWindow};
    std::array<std::atomic<std::uint8_t>, kEach> seen{};
};

class Traffic
{
public:
    Traffic(const UdpSocket &to, std::uint32_t senders) : to_(to), flows_(senders)
    {
        for (auto &flow : flows_)
            flow = std::make_unique<Flow>();
    }
    const UdpSocket &to() const { return to_; }
    std::uint32_t senders() const { return static_cast<std::uint32_t>(flows_.size()); }
    bool enter(std::uint32_t sender) { return check(flows_[sender]->window.enter()); }
    bool check(bool good)
    {
        if (!good)
            errors_.fetch_add(1);
        return good;
    }
    // False: it was the last one for this receiver.
    bool account(const Datagram &datagram, ssize_t received)
    {
        if (!check(datagram.is_whole(received)) || datagram.number == kEnd)
            return false;
        if (!check(datagram.sender < senders() && datagram.number < kEach))
            return false;
        Flow &flow = *flows_[datagram.sender];
        check(flow.seen[datagram.number].exchange(1) == 0);
        flow.window.leave();
        return true;
    }
    bool all_came() const
    {
        for (const auto &flow : flows_)
            for (const auto &seen : flow->seen)
                if (seen.load() != 1)
                    return false;
        return true;
    }
    int errors() const { return errors_.load(); }

    std::atomic<bool> stop{false};
    std::atomic<int> receivers{0};
    std::atomic<std::uint32_t> looks{0}; // that a watcher was told of a datagram

private:
    const UdpSocket &to_;
    std::vector<std::unique_ptr<Flow>> flows_;
    std::atomic<int> errors_{0};
};

// ---- senders and receivers

inline void send_singly(Traffic &traffic, const UdpSocket &from, std::uint32_t sender)
{
    for (std::uint32_t number = 0; number < kEach && traffic.enter(sender); ++number)
        traffic.check(from.send_number(sender, number, traffic.to().address));
}

// The one datagram that ends receivers goes from one to the next.
inline void stop_the_next(Traffic &traffic)
{
    if (traffic.receivers.fetch_sub(1) > 1)
        traffic.check(traffic.to().send_number(0, kEnd, traffic.to().address));
}

inline void receive_singly(Traffic &traffic)
{
    Datagram datagram;
    while (traffic.account(datagram, traffic.to().receive(datagram))) {
    }
    stop_the_next(traffic);
}

// ---- all together

using Receiving = void(Traffic &);
using Sending = void(Traffic &, const UdpSocket &, std::uint32_t);

struct Plan {
    std::vector<const UdpSocket *> from; // one sender each; the same socket may stand there twice
    std::vector<Sending *> sending;      // in turn
    std::vector<Receiving *> receiving;
    std::vector<std::function<void(Traffic &)>> beside = {}; // until `stop`
};

inline std::uint32_t kernel_sends(const Plan &plan)
{
    std::uint32_t sum = 0;
    for (const UdpSocket *const from : plan.from)
        sum += from->kernel_sends();
    return sum;
}

// How many went by the kernel.
inline std::uint32_t run(Traffic &traffic, const Plan &plan)
{
    std::vector<Direction> directions = {{traffic.to(), traffic.to()}};
    for (const UdpSocket *const from : plan.from)
        directions.push_back({*from, traffic.to()});
    assert_true(accelerate_all(directions));
    const std::uint32_t before = kernel_sends(plan);
    std::vector<std::thread> senders;
    std::vector<std::thread> others;
    traffic.receivers = static_cast<int>(plan.receiving.size());
    for (Receiving *const receive : plan.receiving)
        others.emplace_back(receive, std::ref(traffic));
    for (const auto &work : plan.beside)
        others.emplace_back(work, std::ref(traffic));
    for (std::uint32_t i = 0; i < plan.from.size(); ++i)
        senders.emplace_back(plan.sending[i % plan.sending.size()], std::ref(traffic), std::cref(*plan.from[i]), i);
    for (std::thread &sender : senders)
        sender.join();
    const std::uint32_t by_kernel = kernel_sends(plan) - before;
    traffic.check(traffic.to().send_number(0, kEnd, traffic.to().address));
    traffic.stop = true;
    for (std::thread &other : others)
        other.join();
    assert_int_equal(traffic.errors(), 0);
    assert_true(traffic.all_came());
    return by_kernel;
}

// A port of one's own choice, which a disconnected socket keeps.
inline sockaddr_in chosen_address()
{
    const UdpSocket asking;
    return asking.address;
}

} // namespace vma::test
