// SPDX-License-Identifier: BSD-2-Clause
// Makes the peers of connections whose process is dead end them, when all that is known is addresses and ports: a SYN
// in the dead side's name makes the peer acknowledge what it has (a challenge ACK: RFC 5961, 4), and the reset that
// this brings about, by the kernel or by us, has the right number. All connections are under way at once; none waits
// for another's peer.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "core/fd.hpp"
#include "inet/wire/types.hpp"

namespace vma::guard {

using Nanos = inet::Nanos;

// IPv4, as on the wire. `local` is the dead process'.
struct Pair4 {
    std::uint32_t local = 0;
    std::uint32_t remote = 0;
    std::uint16_t local_port = 0;
    std::uint16_t remote_port = 0;

    bool operator==(const Pair4 &) const = default;
    bool operator<(const Pair4 &other) const
    {
        return std::tie(local, remote, local_port, remote_port) <
               std::tie(other.local, other.remote, other.local_port, other.remote_port);
    }
};
std::string text_of(const Pair4 &pair);

using Segment4 = std::array<std::uint8_t, 40>;
// A SYN with the number 1 and no window.
void write_syn(const Pair4 &pair, Segment4 &out);
void write_reset(const Pair4 &pair, std::uint32_t number, Segment4 &out); // in host byte order

// What a peer has sent to a dead side. False: no TCP segment that answers a SYN.
struct Answer {
    Pair4 pair;
    std::uint32_t ack = 0; // in host byte order
    bool reset = false;
};
bool parse_answer(std::span<const std::uint8_t> packet, Answer &answer);

class Prober
{
public:
    struct Settings {
        bool force_reset = false;                   // by us; else the kernel's answers what the peer acknowledges
        Nanos interval = 1000 * inet::kMillisecond; // between two SYNs
    };
    static constexpr unsigned kTries = 3;

    explicit Prober(const Settings &settings) : settings_(settings) {}

    // Nothing if it is under way already.
    void add(const Pair4 &pair, Nanos now);
    std::size_t under_way() const { return probes_.size(); }

    // Readable: answers. It comes and goes with the probes; -1: there are none, or it can't be had.
    int fd() const { return raw_.get(); }
    unsigned opened() const { return opened_; } // how often: another one may have the same number
    void on_readable(Nanos now);
    Nanos due() const { return due_.empty() ? inet::kNever : due_.begin()->first; }
    void on_time(Nanos now);

private:
    struct Probe {
        unsigned tries = 0;
        Nanos due = 0;
    };
    using Probes = std::map<Pair4, Probe>;

    bool open();
    bool send(const Pair4 &pair, const Segment4 &segment) const;
    void wait_until(Probes::iterator probe, Nanos when);
    void drop(Probes::iterator probe);
    void take(const Answer &answer);

    Settings settings_;
    core::UniqueFd raw_;
    Probes probes_;
    std::set<std::pair<Nanos, Pair4>> due_;
    unsigned opened_ = 0;
    bool told_ = false; // that there is no raw socket
};

} // namespace vma::guard
