// SPDX-License-Identifier: BSD-2-Clause
// What both ends of the traffic program agree on: its options, and what a datagram of a flow has to contain.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "fabtests/sockets/programs/datagrams/address.hpp"
#include "fabtests/sockets/programs/pattern.hpp"

namespace fabtest {

inline constexpr std::size_t kMaxLength = 65507;
inline constexpr std::uint32_t kMagic = 0x6d756466;
enum Kind : std::uint32_t { kHello = 1, kData, kEnd, kAck, kEndAck };

// At the start of each datagram that is long enough; the rest, and all of shorter ones, is pattern.
struct Header {
    std::uint32_t magic = kMagic;
    std::uint32_t kind = kData;
    std::uint64_t number = 0; // of the datagram in its flow, HELLO and END counted; kAck: how many were received
    std::uint32_t sender = 0;
    std::uint32_t length = 0;
    std::array<unsigned char, 18> from{}; // the socket it was sent by
    std::array<unsigned char, 6> unused{};
};
static_assert(sizeof(Header) == 48);

struct Options {
    std::string role = "alone"; // receive, send, alone (both in one process), self (a socket that sends to itself)
    std::string mode = "window";
    std::string wait = "block"; // how receivers wait: block, poll, epoll
    std::string bind_to = "127.0.0.1", to = "127.0.0.1", from = "127.0.0.1";
    std::vector<std::uint16_t> ports;
    unsigned senders = 1; // all senders, in whatever process: whom a receiver waits for
    unsigned here = 1;    // senders of this process
    unsigned first_id = 0;
    std::uint16_t from_port = 0;
    std::uint64_t datagrams = 1000; // a flow
    std::uint64_t seed = 1;
    std::size_t budget = 0; // of a receiver's queue, for each sender; a datagram costs about twice its length
    std::size_t largest = kMaxLength;
    bool connected = false;
    bool endless = false;  // never END: to be killed
    bool restarts = false; // receivers and senders may be killed: a flow may begin in its middle and have no end
    bool numbered = false; // no datagram is too short for its number: with the library one may overtake another
};

inline std::string name_of(const Address &address)
{
    return address.host() + " port " + std::to_string(address.port());
}

inline std::size_t cost_of(std::size_t len)
{
    return 2 * len + 2304;
}

// As much as this user may have, the same at both ends.
inline void enlarge_queue(int fd)
{
    const int wanted = 1 << 20;
    if (set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, wanted) < 0)
        must(set_option(fd, SOL_SOCKET, SO_RCVBUF, wanted), "SO_RCVBUF");
}

// What one flow carries.
struct Contents {
    std::uint64_t seed;
    std::size_t least, largest;
    bool numbered;
    Pattern pattern;
    Contents(const Options &o, unsigned sender, std::uint16_t port)
        : seed(o.seed ^ (std::uint64_t{sender} << 40) ^ (std::uint64_t{port} << 20)),
          least(o.mode == "window" ? 0 : sizeof(Header)), largest(o.largest), numbered(o.numbered), pattern(seed)
    {
    }
    // Every magnitude up to the largest datagram; in "flood" mode small ones, as many as the processor can make.
    std::size_t length(std::uint64_t number) const
    {
        Random random(seed + number);
        if (least > 0)
            return least + random.below(1400 - least);
        const std::size_t shortest = numbered ? sizeof(Header) : 0;
        if (random.below(64) == 0)
            return random.below(2) == 0 ? shortest : largest;
        return std::clamp(random.size(16), shortest, largest);
    }
    void fill(std::uint64_t number, char *buf, std::size_t len) const { pattern.fill(number << 17, buf, len); }
    std::size_t check(std::uint64_t number, const char *buf, std::size_t from, std::size_t len) const
    {
        return from + pattern.check((number << 17) + from, buf + from, len - from);
    }
};

// With the library a flow changes from the kernel to the endpoint, once or more: order holds on each of the two ways,
// and the kernel may be late (up to a time slice, when both processors spin).
inline bool changes_ways()
{
    static const bool preloaded = std::getenv("LD_PRELOAD") != nullptr;
    return preloaded;
}

// One port, and what comes to it.
class Receiver
{
public:
    virtual ~Receiver() = default;
    virtual int fd() const = 0;
    virtual bool ended() const = 0;
    // One call. False: nothing there (only with `flags` MSG_DONTWAIT).
    virtual bool receive(int flags) = 0;
    virtual void report() const = 0;
};

using Receivers = std::vector<std::unique_ptr<Receiver>>;

std::unique_ptr<Receiver> make_receiver(const Options &o, std::uint16_t port);
void receive_all_of(const Options &o, const Receivers &receivers);
void send_all_of(const Options &o);

} // namespace fabtest
