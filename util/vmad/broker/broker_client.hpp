// SPDX-License-Identifier: BSD-2-Clause
// A process that has connected to the broker: what it sends, and answers that it has yet to read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "core/fd.hpp"
#include "discards.hpp"
#include "pair_code.hpp"
#include "request.hpp"

namespace vma::guard {

// What a user has of the broker.
struct Account {
    std::size_t connections = 0;
    std::size_t held = 0; // descriptors that a process of his has not taken
};

class BrokerClient
{
public:
    BrokerClient(core::UniqueFd socket, Person person, Account &account, Discards &discards);
    ~BrokerClient();
    BrokerClient(const BrokerClient &) = delete;
    BrokerClient &operator=(const BrokerClient &) = delete;

    enum class Received : std::uint8_t { kNothing, kRequest, kTooMuch, kOver };
    struct Packet {
        std::array<std::byte, sizeof(broker::Request)> bytes;
        std::size_t size; // as it was sent
        core::UniqueFd descriptors[2];
        unsigned count;
    };
    Received receive(Packet &packet); // kTooMuch: of descriptors; the message is still there

    // Sends it, now or when there is room. False: it doesn't read, or is gone. Where the kernel passes no descriptor
    // now the answer becomes kBusy.
    bool send(broker::Answer answer, core::UniqueFd passed);
    bool send_more();                                  // there is room
    bool is_behind() const { return !queue_.empty(); } // to be asked for room, and not for requests

    int fd() const { return socket_.get(); }
    const Person &person() const { return person_; }
    Account &account() { return account_; }
    void close(); // now; what it has asked for is the caller's business

    std::unordered_map<std::uint32_t, PairNumbers> waiting; // by the question's id
    bool watched_for_room = false;

private:
    struct Queued {
        broker::Answer answer;
        core::UniqueFd passed;
    };
    enum class Sent : std::uint8_t { kSent, kLater, kFailed };
    Sent send_now(broker::Answer &answer, core::UniqueFd &passed); // or that it can't be passed, which `answer` is then
    void let_go(core::UniqueFd &end);

    core::UniqueFd socket_;
    Person person_;
    Account &account_;
    Discards &discards_;
    std::deque<Queued> queue_;
};

} // namespace vma::guard
