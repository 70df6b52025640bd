// SPDX-License-Identifier: BSD-2-Clause
// Datagrams that are checked: every byte is a function of seed, flow and sequence number, and so is every length. A
// flow is one sender's socket to one receiver's. In "window" mode receivers acknowledge over UDP and nothing may be
// lost; in "flood" mode what is lost must be what SO_RXQ_OVFL counts. There is no channel besides UDP: a process may be
// anywhere.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "fabtests/sockets/programs/datagrams/traffic.hpp"

namespace {

using namespace fabtest;

// A socket that sends to itself, two at a time, and takes them back.
void send_to_self(const Options &o)
{
    const int fd = bound_socket(make_address(o.bind_to.c_str(), o.ports.at(0)));
    const Address own = local_address(fd);
    const Contents contents(o, 0, own.port());
    std::string out(kMaxLength, '\0'), in(kMaxLength + 1, '\0');
    for (std::uint64_t i = 0; i < o.datagrams; ++i) {
        if (i == o.datagrams / 2)
            must(connect_to(fd, own), "connect to itself");
        const std::size_t len[2] = {contents.length(2 * i), contents.length(2 * i + 1) / 2};
        for (unsigned k = 0; k < 2; ++k) {
            contents.fill(2 * i + k, out.data(), len[k]);
            if (send_to(fd, out.data(), len[k], own) != static_cast<ssize_t>(len[k]))
                die("send to itself: %s", strerrorname_np(errno));
        }
        for (unsigned k = 0; k < 2; ++k) {
            Address from;
            const ssize_t n = ::recvfrom(fd, in.data(), in.size(), 0, from.get(), &from.len);
            if (n != static_cast<ssize_t>(len[k]) || contents.check(2 * i + k, in.data(), 0, len[k]) != len[k])
                die("from itself: %zd instead of %zu, or wrong", n, len[k]);
            if (from.bytes() != own.bytes())
                die("from itself: of %s", name_of(from).c_str());
        }
    }
    char byte;
    if (::recv(fd, &byte, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN)
        die("from itself: one more");
    ::close(fd);
    const unsigned long long total = 2 * o.datagrams;
    std::printf("itself: %llu sent and received\n", total);
}

Options parse(int argc, char **argv)
{
    Options o;
    o.role = argc > 1 ? argv[1] : "";
    for (int i = 2; i + 1 < argc; i += 2) {
        const std::string name = argv[i], value = argv[i + 1];
        const auto number = std::strtoull(value.c_str(), nullptr, 0);
        const std::map<std::string, std::string *> texts = {
            {"--mode", &o.mode}, {"--wait", &o.wait}, {"--bind", &o.bind_to}, {"--to", &o.to}, {"--from", &o.from}};
        const std::map<std::string, unsigned *> numbers = {
            {"--senders", &o.senders}, {"--here", &o.here}, {"--first-id", &o.first_id}};
        const std::map<std::string, bool *> switches = {
            {"--connected", &o.connected}, {"--endless", &o.endless}, {"--restarts", &o.restarts}};
        if (texts.contains(name)) {
            *texts.at(name) = value;
        } else if (numbers.contains(name)) {
            *numbers.at(name) = static_cast<unsigned>(number);
        } else if (switches.contains(name)) {
            *switches.at(name) = number != 0;
        } else if (name == "--from-port") {
            o.from_port = static_cast<std::uint16_t>(number);
        } else if (name == "--datagrams") {
            o.datagrams = number;
        } else if (name == "--numbered") {
            o.numbered = number != 0;
        } else if (name == "--seed") {
            o.seed = number;
        } else if (name == "--ports") {
            std::istringstream list(value);
            for (std::string port; std::getline(list, port, ',');)
                o.ports.push_back(static_cast<std::uint16_t>(std::strtoul(port.c_str(), nullptr, 0)));
        } else {
            die("unknown: %s", name.c_str());
        }
    }
    const int probe = udp_socket(AF_INET);
    enlarge_queue(probe);
    o.budget = static_cast<std::size_t>(int_option(probe, SOL_SOCKET, SO_RCVBUF)) / 2 / o.senders;
    o.largest = std::min(kMaxLength, (o.budget - cost_of(0)) / 2);
    ::close(probe);
    return o;
}

} // namespace

// traffic receive|send|alone|self [--OPTION VALUE]...: see Options. "ready" is printed once the receivers' ports are
// bound.
int main(int argc, char **argv)
{
    const Options o = parse(argc, argv);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::printf("seed %llu\n", static_cast<unsigned long long>(o.seed));
    if (o.role == "self") {
        send_to_self(o);
        return 0;
    }
    Receivers receivers;
    if (o.role != "send")
        for (const std::uint16_t port : o.ports)
            receivers.push_back(make_receiver(o, port));
    std::printf("ready\n");
    std::thread senders;
    if (o.role == "send" || o.role == "alone")
        senders = std::thread([&o] { send_all_of(o); });
    if (o.role != "send")
        receive_all_of(o, receivers);
    if (senders.joinable())
        senders.join();
    for (const auto &r : receivers)
        r->report();
    return 0;
}
