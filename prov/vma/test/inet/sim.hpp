// SPDX-License-Identifier: BSD-2-Clause
// Two TCP engines and a link between them, on a clock that only the link moves: rate, delay, a bounded queue, loss,
// duplicates, reordering, flipped bits, congestion marks. A run is a function of its seed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <queue>
#include <vector>

#include "prov/vma/src/inet/tcp/tcp.hpp"
#include "prov/vma/test/inet/transitions.hpp"

namespace vma::inet::sim {

class Random // splitmix64 (Steele, Lea and Flood, 2014)
{
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next()
    {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    std::uint64_t below(std::uint64_t n) { return next() % n; }
    bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1p-53 < p; }

private:
    std::uint64_t state_;
};

inline Nanos usual_coalesce = 0; // of links that don't say, so that a program can do all its runs again with another

inline std::uint32_t usual_segment_limit = 0; // bytes that engines leave to the link to cut into segments

struct LinkSettings {
    double rate = 10e9; // bits a second, of IP packets
    Nanos delay = 50 * kMicrosecond;
    std::size_t queue = 65536; // bytes that wait for the link: then the sender isn't asked for more, as by a full NIC,
    bool drop_tail = false;    // or what it has more is dropped, as in a router
    double loss = 0;
    double duplicate = 0;
    double reorder = 0; // is held back by up to reorder_by
    Nanos reorder_by = kMillisecond;
    double corrupt = 0;              // one bit is flipped
    double mark = 0;                 // ECN: congestion experienced, of packets that can carry it
    Nanos coalesce = usual_coalesce; // what arrives within so long is handed over at its end, in one batch, as by a NIC
};

struct LinkCounts {
    std::uint64_t sent = 0, lost = 0, overflowed = 0, duplicated = 0, reordered = 0, corrupted = 0, marked = 0;
};

// One thing that an engine was told, or said.
struct Step {
    enum Kind { kAdvance, kInput, kFlush, kOutput, kConnect, kSend, kReceive, kShutdown, kClose } kind;
    Nanos at = 0;
    std::vector<std::uint8_t> bytes; // of the segment or the call
    std::uint8_t traffic_class = 0;
    ConnectionId connection; // of the call, and of what kConnect gave
    std::int64_t result = 0; // of the call, and the length of kReceive's buffer in `bytes`

    bool operator==(const Step &) const = default;
};

// What crosses: the transport's bytes, and what IP would say of them.
struct Datagram {
    Nanos at = 0;
    std::uint64_t order = 0;
    unsigned to = 0;
    IpAddress source, target;
    std::uint8_t traffic_class = 0;
    std::vector<std::uint8_t> bytes;

    bool operator>(const Datagram &o) const { return at != o.at ? at > o.at : order > o.order; }
};

inline constexpr IpAddress kAddress[2] = {IpAddress::v4(0x0a000001), IpAddress::v4(0x0a000002)};

class Network
{
public:
    Network(std::uint64_t seed, const LinkSettings &link, const TcpLimits &limits = {}, std::uint16_t mtu = 1500);

    ~Network();
    Network(const Network &) = delete;
    Network &operator=(const Network &) = delete;

    Tcp &tcp(unsigned side) { return *tcp_[side]; }
    Nanos now() const { return now_; }
    Random &random() { return random_; }
    LinkSettings &link(unsigned from) { return link_[from]; }
    const LinkCounts &counts(unsigned from) const { return counts_[from]; }
    double busy(unsigned from) const { return static_cast<double>(sent_bytes_[from]) * 8; } // bits that were sent

    // The next thing that happens on the link or by a timer. False: nothing ever will.
    bool step();

    // Until the condition holds; false: `limit` is reached, or nothing happens any more. `act` runs after each step.
    template <typename Done, typename Act> bool run(Nanos limit, Done done, Act act)
    {
        while (!done()) {
            if (now_ > limit || !step())
                return done();
            act();
        }
        return true;
    }

    ConnectionId connect(unsigned side, std::uint16_t port, std::uint16_t to, const TcpSettings &settings = {},
                         std::uint64_t user = 0);
    ListenerId listen(unsigned side, std::uint16_t port, const TcpSettings &settings = {}, std::uint32_t backlog = 128);

    // From now on what side 0 is told and says is written down; calls of the program write themselves.
    void record(std::vector<Step> &trace) { trace_ = &trace; }
    const HashKey &secret(unsigned side) const { return secret_[side]; }

    // A frame that neither engine sent.
    void inject(unsigned to, const Segment &segment, std::span<const std::uint8_t> data = {}, Nanos after = 0);

    // Sees each segment before it goes; false throws it away.
    using Filter = bool (*)(void *context, unsigned from, std::vector<std::uint8_t> &bytes,
                            std::uint8_t &traffic_class);
    void set_filter(Filter filter, void *context)
    {
        filter_ = filter;
        context_ = context;
    }

private:
    void pull(unsigned side);
    Nanos queue_time(unsigned side) const; // how long a full queue takes
    void send(unsigned side, Datagram &&datagram);
    void carry(unsigned side, Datagram &&datagram);
    void deliver();
    Nanos arrival(unsigned from, Nanos at) const; // when what comes at this time is handed over

    Nanos now_ = kSecond; // not 0, which could hide an uninitialised time
    Random random_;
    LinkSettings link_[2];
    LinkCounts counts_[2];
    std::uint64_t sent_bytes_[2] = {};
    Nanos busy_until_[2] = {};
    Transitions transitions_;
    std::unique_ptr<Tcp> tcp_[2];
    std::priority_queue<Datagram, std::vector<Datagram>, std::greater<>> under_way_;
    std::uint64_t order_ = 0;
    HashKey secret_[2];
    std::vector<Step> *trace_ = nullptr;
    Filter filter_ = nullptr;
    void *context_ = nullptr;
};

// Bytes that tell where they belong: of the stream `seed`, from `position` on.
void fill(std::uint64_t seed, std::uint64_t position, std::span<std::uint8_t> out);
bool check(std::uint64_t seed, std::uint64_t position, std::span<const std::uint8_t> data);

} // namespace vma::inet::sim
