// SPDX-License-Identifier: BSD-2-Clause
// Introduces the processes at the two ends of a TCP connection within this host to each other: doc/broker.md. Its
// descriptors are in a set of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "broker_client.hpp"
#include "discards.hpp"
#include "pair_table.hpp"
#include "person.hpp"
#include "policy.hpp"
#include "util/vmad/listener.hpp"
#include "waiting.hpp"

namespace vma::guard {

struct BrokerOptions {
    std::string socket = broker::kPath; // empty: there is no broker
    std::string rules;                  // a file; empty: /etc/vmad.conf, if there is one
    std::string cgroup;                 // the tree that the program is attached to; empty: where it is mounted
    std::uint32_t connections = 65536;  // that the kernel knows both ends of
    Waiting::Limits waiting;
};

class Broker
{
public:
    explicit Broker(const BrokerOptions &options) : options_(options), waiting_(options.waiting) {}
    ~Broker();
    Broker(const Broker &) = delete;
    Broker &operator=(const Broker &) = delete;

    // An empty text, or why there is no broker. Then fd() is -1 and the rest does nothing.
    std::string open();
    int fd() const { return set_.get(); } // readable: on_readable() has something to do
    void on_readable(Nanos now);
    // The rules as they are in the file now; who was introduced before stays so. Where the file is wrong, a line says
    // what is, and the rules stay.
    void read_rules();
    Nanos due() const; // CLOCK_MONOTONIC, when on_time() is wanted; kNever
    void on_time(Nanos now);

private:
    std::string prepare();
    std::string load_rules();
    bool watch(int operation, int fd, std::uint32_t events, std::uint64_t number);
    void accept_waiting(Nanos now);
    void pause(Nanos now, int error);
    void admit(core::UniqueFd socket);
    void on_event(BrokerClient &client, std::uint64_t number, std::uint32_t events, Nanos now);
    bool take(BrokerClient &client, std::uint64_t number, BrokerClient::Packet &packet, Nanos now);
    broker::Result examine(int socket, Question &question) const;
    void ask(Question &question, core::UniqueFd &given, Nanos now);
    bool discard(BrokerClient::Packet &packet, uid_t user);
    void ask_again(Question &question, Nanos now);
    void settle(const Question &question, Nanos now);
    void cancel(BrokerClient &client, std::uint32_t id);
    bool is_there(const Question &question);
    void introduce(const Question &late, const Question &early, Nanos now);
    void refuse(const Question &question, broker::Result result);
    bool answer(const Question &question, const broker::Answer &answer, core::UniqueFd passed);
    void cut(std::uint64_t number, const char *why);
    void remove_closed();
    BrokerClient *find(std::uint64_t number);

    BrokerOptions options_;
    Listener listener_;
    core::UniqueFd set_; // epoll
    PairTable table_;
    Policy policy_;
    Waiting waiting_;
    Discards discards_;
    std::unordered_map<uid_t, Account> accounts_;
    std::unordered_map<std::uint64_t, std::unique_ptr<BrokerClient>> clients_; // by numbers that never come again
    std::vector<std::uint64_t> over_; // clients that are closed, and go at the end of the turn
    std::uint64_t last_client_ = 0;   // 0 in the set is the listener
    std::uint64_t last_pair_ = 0;
    Nanos paused_until_ = inet::kNever; // kNever: the listener is watched
};

} // namespace vma::guard
