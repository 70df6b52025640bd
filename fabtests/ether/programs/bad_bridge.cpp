// SPDX-License-Identifier: BSD-2-Clause
// A bridge between two interfaces that drops, doubles, holds back and marks frames (ECN), as a bad network does. It
// runs until the end of its standard input, then says what it has done.
//
//   bad_bridge ONE OTHER LOSS DUPLICATES HELD_BACK MARKED SEED      probabilities in percent; "bridging" when it works
//
// Commands: "hold INTERFACE": frames that come from there wait; "drop INTERFACE": they are lost; "go INTERFACE": on
// they go.
#include <net/ethernet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/fd.hpp"
#include "fabtests/ether/programs/commands.hpp"
#include "fabtests/ether/programs/packet_socket.hpp"

using namespace vma;
using fabtest::die;

namespace {

constexpr std::uint64_t kLongestHold = 3'000'000; // ns
constexpr std::size_t kLongestFrame = 65536;

// Says "congestion" in a frame whose sender has said that it may be said (RFC 3168, 5). Whether it has.
bool mark(std::vector<std::uint8_t> &frame)
{
    constexpr std::size_t kAt = ETH_HLEN;
    constexpr std::uint8_t kEcn = 3;
    if (frame.size() < kAt + 40)
        return false;
    if (frame[12] == 0x86 && frame[13] == 0xdd) { // IPv6: the bits are 4 and 5 of the second byte
        const unsigned ecn = frame[kAt + 1] >> 4 & kEcn;
        frame[kAt + 1] |= ecn == 0 ? 0 : kEcn << 4;
        return ecn != 0;
    }
    const unsigned ecn = frame[kAt + 1] & kEcn;
    if (frame[12] != 0x08 || frame[13] != 0x00 || ecn == 0)
        return false;
    const unsigned sum = static_cast<unsigned>(frame[kAt + 10]) << 8 | frame[kAt + 11]; // RFC 1624
    const unsigned less = sum + 0xffff - (kEcn - ecn);
    const unsigned folded = (less & 0xffff) + (less >> 16);
    frame[kAt + 10] = static_cast<std::uint8_t>(folded >> 8);
    frame[kAt + 11] = static_cast<std::uint8_t>(folded);
    frame[kAt + 1] |= kEcn;
    return true;
}

enum class Gate { kGo, kHold, kDrop };

struct Held {
    std::uint64_t until;
    unsigned to;
    std::vector<std::uint8_t> frame;

    bool operator>(const Held &o) const { return until > o.until; }
};

class Bridge
{
public:
    explicit Bridge(char **argv)
        : name_{argv[1], argv[2]}, side_{fabtest::open_packet_socket(argv[1]), fabtest::open_packet_socket(argv[2])},
          loss_(std::atof(argv[3]) / 100), duplicates_(std::atof(argv[4]) / 100), held_back_(std::atof(argv[5]) / 100),
          marked_(std::atof(argv[6]) / 100), random_(static_cast<unsigned>(std::atoi(argv[7])))
    {
    }

    void run()
    {
        fabtest::Commands commands;
        while (commands.take([this](const std::string &line) { obey(line); })) {
            for (unsigned from = 0; from < 2; ++from)
                take(from);
            const std::uint64_t now = core::monotonic_ns();
            for (; !held_.empty() && held_.top().until <= now; held_.pop())
                send(held_.top().to, held_.top().frame);
            pollfd wanted[] = {{STDIN_FILENO, POLLIN, 0}, {listened(0), POLLIN, 0}, {listened(1), POLLIN, 0}};
            const timespec left = {0, static_cast<long>(held_.empty() ? 0 : held_.top().until - now)};
            (void)::ppoll(wanted, 3, held_.empty() ? nullptr : &left, nullptr);
        }
        std::printf("carried %lu lost %lu doubled %lu held %lu marked %lu\n", carried_, lost_, doubled_, delayed_,
                    congested_);
    }

private:
    void obey(const std::string &line)
    {
        const std::size_t space = line.find(' ');
        const std::string what = line.substr(0, space);
        const std::string where = space == std::string::npos ? "" : line.substr(space + 1);
        if (where != name_[0] && where != name_[1])
            die(line.c_str(), EINVAL);
        gate_[where == name_[0] ? 0 : 1] = what == "hold" ? Gate::kHold : what == "drop" ? Gate::kDrop : Gate::kGo;
        fabtest::answer(0);
    }

    int listened(unsigned from) const { return gate_[from] == Gate::kHold ? -1 : side_[from].get(); }

    void take(unsigned from)
    {
        if (gate_[from] == Gate::kHold)
            return;
        static std::uint8_t frame[kLongestFrame];
        for (int i = 0; i < 64; ++i) {
            const ssize_t n = ::recv(side_[from].get(), frame, sizeof frame, MSG_TRUNC);
            if (n <= 0)
                return;
            if (n > static_cast<ssize_t>(sizeof frame))
                die("a frame is too long: switch segmentation off", EMSGSIZE);
            if (gate_[from] == Gate::kDrop)
                ++lost_;
            else
                judge(1 - from, {frame, frame + n});
        }
    }

    bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }

    void judge(unsigned to, std::vector<std::uint8_t> frame)
    {
        if (chance(loss_)) {
            ++lost_;
            return;
        }
        if (chance(marked_) && mark(frame))
            ++congested_;
        if (chance(duplicates_)) {
            ++doubled_;
            send(to, frame);
        }
        if (!chance(held_back_)) {
            send(to, frame);
            return;
        }
        ++delayed_;
        held_.push({core::monotonic_ns() + random_() % kLongestHold, to, std::move(frame)});
    }

    void send(unsigned to, const std::vector<std::uint8_t> &frame)
    {
        while (::send(side_[to].get(), frame.data(), frame.size(), 0) < 0) {
            if (errno != EAGAIN && errno != ENOBUFS)
                die("send", errno);
            pollfd wanted = {side_[to].get(), POLLOUT, 0};
            (void)::poll(&wanted, 1, 1);
        }
        ++carried_;
    }

    const std::string name_[2];
    core::UniqueFd side_[2];
    Gate gate_[2] = {Gate::kGo, Gate::kGo};
    const double loss_;
    const double duplicates_;
    const double held_back_;
    const double marked_;
    std::mt19937 random_;
    std::priority_queue<Held, std::vector<Held>, std::greater<>> held_;
    std::uint64_t carried_ = 0;
    std::uint64_t lost_ = 0;
    std::uint64_t doubled_ = 0;
    std::uint64_t delayed_ = 0;
    std::uint64_t congested_ = 0;
};

} // namespace

int main(int argc, char **argv)
{
    if (argc != 8)
        die("bad_bridge ONE OTHER LOSS DUPLICATES HELD_BACK MARKED SEED", EINVAL);
    Bridge bridge(argv);
    std::printf("bridging\n");
    std::fflush(stdout);
    bridge.run();
}
