// SPDX-License-Identifier: BSD-2-Clause
// Answers UDP frames of the flows it is told of, by AF_XDP and nothing else: no ARP, no stack. Its standard input takes
// one command a line and its standard output answers each with one line.
//
//   frame_echo INTERFACE [generic|native] [poll|spin|busy] [long] [software|hardware] [queue NUMBER]...
//     long: buffers of 4096 bytes instead of 2048; software, hardware: time stamps
//   add|remove udp|tcp LOCAL PORT [REMOTE PORT]     "ok" or the error's name
//   address|forget ADDRESS                          the same
//   copy | in-place                                 answers are frames of their own | those received (as at the start)
//   fork                                            "ok"; the child lives as long as the input, which it eats
//   stamps                                          "hardware 12 0": which there are, and those of the last frame
//   counters                                        "hits 1 passes 2 errors 0 received 1 sent 1 lost 0 gathered 0 broken 0"
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "ether/xdp/nic.hpp"
#include "fabtests/ether/programs/commands.hpp"
#include "fabtests/ether/programs/echo.hpp"

using namespace vma;
using Nic = ether::XdpNic;
using fabtest::die;
using fabtest::parse_address;

namespace {

constexpr std::size_t kBurst = 32;
constexpr int kSpinsBetweenCommands = 1 << 14;

enum class Wait { kPoll, kSpin, kBusy };

class Echo
{
public:
    Echo(Nic &nic, Wait wait) : nic_(nic), wait_(wait) {}

    void run()
    {
        while (!ended_) {
            if (wait_ == Wait::kPoll)
                wait_for_anything();
            else
                spin();
            ended_ = !commands_.take([this](const std::string &line) { obey(line); });
        }
    }

private:
    void wait_for_anything()
    {
        std::vector<pollfd> wanted{{STDIN_FILENO, POLLIN, 0}};
        for (const ether::XdpSocket &socket : nic_.queues())
            wanted.push_back({socket.fd(), POLLIN, 0});
        if (::poll(wanted.data(), wanted.size(), -1) < 0)
            die("poll", errno);
        turn();
    }

    void spin()
    {
        for (int i = 0; i < kSpinsBetweenCommands; ++i) {
            if (!turn() && wait_ == Wait::kBusy) {
                for (ether::XdpSocket &socket : nic_.queues())
                    socket.drive();
            }
        }
    }

    bool turn()
    {
        bool any = false;
        for (ether::XdpSocket &socket : nic_.queues())
            any |= turn(socket);
        return any;
    }

    bool turn(ether::XdpSocket &socket)
    {
        std::array<ether::ReceivedFrame, kBurst> burst;
        const std::size_t count = socket.receive(burst);
        for (std::size_t i = 0; i < count; ++i) {
            const ether::ReceivedFrame &frame = burst[i];
            ++received_;
            last_ = frame.stamps;
            if (!fabtest::turn_round(frame.bytes) || !answer(socket, frame))
                socket.release(frame.index);
        }
        if (count != 0) {
            while (true) {
                const int status = socket.flush();
                if (status == 0)
                    break;
                if (status != -EAGAIN)
                    die("flush", -status);
            }
        }
        return count != 0;
    }

    // False: the received frame is still ours.
    bool answer(ether::XdpSocket &socket, const ether::ReceivedFrame &frame)
    {
        const auto size = static_cast<std::uint32_t>(frame.bytes.size());
        const bool here = frame.index != ether::kNoFrame; // else it had several buffers
        const ether::FrameIndex copy = copies_ || !here ? socket.take() : ether::kNoFrame;
        if (copy == ether::kNoFrame) {
            if (!here)
                return false;
            const bool submitted = socket.submit(frame.index, size);
            sent_ += submitted;
            return submitted;
        }
        std::ranges::copy(frame.bytes, socket.bytes(copy).begin());
        if (socket.submit(copy, size))
            ++sent_;
        else
            socket.release(copy);
        return false;
    }

    void obey(const std::string &line)
    {
        std::istringstream words(line);
        std::string verb;
        words >> verb;
        if (verb == "counters") {
            tell_counters();
            return;
        }
        if (verb == "stamps") {
            constexpr const char *kNames[] = {"off", "software", "hardware"};
            std::printf("%s %lu %lu\n", kNames[static_cast<unsigned>(nic_.stamps())], last_.arrived, last_.hardware);
            std::fflush(stdout);
            return;
        }
        int status = -EINVAL;
        if (verb == "copy" || verb == "in-place") {
            copies_ = verb == "copy";
            status = 0;
        } else if (verb == "fork") {
            status = fork_off();
        } else if (verb == "address" || verb == "forget") {
            status = change_address(verb == "address", words);
        } else if (verb == "add" || verb == "remove") {
            status = change_flow(verb == "add", words);
        }
        fabtest::answer(status);
    }

    static int fork_off()
    {
        const pid_t child = ::fork();
        if (child == 0) {
            char byte = 0;
            while (::read(STDIN_FILENO, &byte, 1) > 0)
                ;
            ::_exit(0);
        }
        return child > 0 ? 0 : -errno;
    }

    int change_address(bool add, std::istringstream &words)
    {
        std::string text;
        inet::IpAddress address;
        if (!(words >> text) || !parse_address(text, address))
            return -EINVAL;
        return add ? nic_.flows().add_address(address) : nic_.flows().remove_address(address);
    }

    int change_flow(bool add, std::istringstream &words)
    {
        std::string protocol, local, remote;
        inet::Flow flow;
        if (!(words >> protocol >> local >> flow.local.port) || !parse_address(local, flow.local.address))
            return -EINVAL;
        if (words >> remote && (!parse_address(remote, flow.remote.address) || !(words >> flow.remote.port)))
            return -EINVAL;
        const inet::Protocol number = protocol == "tcp" ? inet::Protocol::kTcp : inet::Protocol::kUdp;
        return add ? nic_.flows().add(flow, number) : nic_.flows().remove(flow, number);
    }

    void tell_counters()
    {
        ether::SteeringCounters steering;
        if (const int status = nic_.program().counters(steering); status != 0)
            die("counters", -status);
        ether::XdpSocketCounters all;
        for (const ether::XdpSocket &socket : nic_.queues()) {
            ether::XdpSocketCounters one;
            if (const int status = socket.counters(one); status != 0)
                die("socket's counters", -status);
            all.dropped += one.dropped;
            all.gathered += one.gathered;
            all.broken += one.broken;
        }
        std::printf("hits %lu passes %lu errors %lu received %lu sent %lu lost %lu gathered %lu broken %lu\n",
                    steering.hits, steering.passes, steering.errors, received_, sent_, all.dropped, all.gathered,
                    all.broken);
        std::fflush(stdout);
    }

    Nic &nic_;
    const Wait wait_;
    bool ended_ = false;
    bool copies_ = false;
    ether::FrameStamps last_;
    std::uint64_t received_ = 0;
    std::uint64_t sent_ = 0;
    fabtest::Commands commands_;
};

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2)
        die("frame_echo INTERFACE [generic|native] [poll|spin|busy] [long] [software|hardware] [queue NUMBER]...",
            EINVAL);
    ether::XdpNicOptions options;
    Wait wait = Wait::kPoll;
    for (int i = 2; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "generic")
            options.mode = ether::XdpMode::kGeneric;
        else if (word == "native")
            options.mode = ether::XdpMode::kNative;
        else if (word == "spin")
            wait = Wait::kSpin;
        else if (word == "busy")
            wait = Wait::kBusy, options.sockets.busy_poll_usec = 20;
        else if (word == "long")
            options.sockets.frame_size = 4096;
        else if (word == "software")
            options.stamps = ether::XdpStamps::kSoftware;
        else if (word == "hardware")
            options.stamps = ether::XdpStamps::kHardware;
        else if (word == "queue" && i + 1 < argc)
            options.queues.push_back(static_cast<unsigned>(std::atoi(argv[++i])));
    }
    Nic nic;
    if (const int status = Nic::open(argv[1], options, nic); status != 0)
        die(argv[1], -status);
    const char *const mode = nic.program().mode() == ether::XdpMode::kNative ? "native" : "generic";
    std::printf("open %s %zu\n", mode, nic.queues().size());
    std::fflush(stdout);
    Echo(nic, wait).run();
}
