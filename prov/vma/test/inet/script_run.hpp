// SPDX-License-Identifier: BSD-2-Clause
// One script's run: an engine on a clock of its own, the peers that the script plays, and what the engine has sent
// that no line has spoken of yet.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "prov/vma/src/inet/tcp/tcp.hpp"
#include "prov/vma/test/inet/script.hpp"
#include "prov/vma/test/inet/transitions.hpp"

namespace vma::inet::script {

class Runner
{
public:
    // Not empty: why the line failed.
    std::string run_line(std::string_view line);
    std::string finish(); // nothing may be left that was sent and not expected

private:
    // A flow with the engine, `@N` in scripts: port kFirstPort + N talks to it.
    struct Peer {
        unsigned number = 0;
        ConnectionId id; // the program's
        bool iss_known = false, stamps_known = false;
        bool offered_stamps = false, agreed_stamps = false;
        Seq isn = 0;                                   // the script's SYN
        Seq iss = 0;                                   // the engine's
        std::uint32_t first_stamp = 0, last_stamp = 0; // the engine's
        std::uint32_t own_stamp = 0;                   // the script's, in its last SYN
        Nanos own_stamp_at = 0;
        std::uint64_t sent = 0, received = 0; // by the program
        std::uint32_t events = 0;             // that no line has spoken of
    };

    // What the engine has sent.
    struct Came {
        Nanos at = 0;
        unsigned peer = 0;
        bool data_good = true;
        Pattern pattern;
    };

    struct When { // relative to the line before
        Nanos from = 0;
        Nanos to = 0;
    };

    // ---- script.cpp: time, segments
    std::string run_words(Words &words);
    std::string wait(Nanos duration);
    std::string expect(Words &words, const When &when);
    std::string expect_one(const Pattern &wanted, const When &when);
    std::string inject(Words &words);
    Packet write_packet(const Pattern &pattern, std::vector<std::uint8_t> &bytes);
    std::string write_came(const Came &came) const;
    std::string unexpected() const;
    bool advance_to(Nanos until, bool stop_at_output); // true: something came
    void collect();
    Came read_segment(std::span<const std::uint8_t> bytes, const TcpOut &meta);
    void learn(Peer &peer, const Segment &segment);
    void add_stamps(TcpOptions &options, const Pattern &pattern);
    void start();
    Peer &peer(unsigned number);
    Flow flow() const; // of the line's peer, as the engine sees it

    // ---- script_calls.cpp: the program, its settings, what is checked
    std::string call(std::string_view name, Words &words, bool &known);
    std::string set(Words &words);
    std::string set_one(std::string_view name, std::string_view value);
    std::string check(Words &words);
    std::string check_one(Words &words) const;
    std::optional<std::int64_t> value_of(std::string_view name, Words &words) const;
    std::string check_state(std::string_view state) const;
    std::string events(Words &words);
    std::string icmp(Words &words);
    std::int64_t connect();
    std::int64_t accept();
    std::int64_t send(std::size_t length);
    std::int64_t receive(std::size_t length, bool peek, bool &good);
    std::string outcome(Words &words, std::int64_t came, std::int64_t usual) const;

    static constexpr std::uint16_t kPort = 7000; // the engine's
    static constexpr std::uint16_t kFirstPort = 40000;

    Nanos now_ = 1000 * kSecond;
    std::uint16_t mtu_ = 1500;
    bool ipv6_ = false;
    TcpLimits limits_{64, 4, 64, 64, 4096, 12, 4096, 64};
    TcpSettings settings_;
    Transitions transitions_;
    std::unique_ptr<Tcp> tcp_;
    ListenerId listener_;
    std::map<unsigned, Peer> peers_;
    unsigned current_ = 1;
    std::deque<Came> came_;
};

} // namespace vma::inet::script
