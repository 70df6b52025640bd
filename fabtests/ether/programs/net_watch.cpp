// SPDX-License-Identifier: BSD-2-Clause
// Follows the network configuration as the Ethernet device does and answers questions about it, one a line.
//
//   net_watch [RECEIVE-BUFFER]
//   link NAME                       "mtu 1500 up 1 carrier 1 mac aa:bb:cc:dd:ee:ff" | "none"
//   local ADDRESS                   "1" | "0"
//   locals                          how many addresses there are
//   route DESTINATION [SOURCE]      "unicast dev wire via 10.99.0.2 from 10.99.0.1 mtu 0" | the error's name
//   neighbour NAME ADDRESS          "usable aa:bb:cc:dd:ee:ff"
//   resolve NAME ADDRESS            "ok" | the error's name
//   generation | neighbours | overruns   a number
//   hold | follow                   events are not taken | taken (as at the start)
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "ether/netlink/cache.hpp"
#include "fabtests/ether/programs/commands.hpp"

using namespace vma;
using ether::NetState;
using fabtest::die;

namespace {

std::string text_of(const inet::Mac &mac)
{
    char text[18];
    const auto &b = mac.bytes;
    std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5]);
    return text;
}

class Watch
{
public:
    explicit Watch(NetState &net) : net_(net) {}

    void run()
    {
        bool more = true;
        while (more) {
            pollfd wanted[] = {{STDIN_FILENO, POLLIN, 0}, {holds_ ? -1 : net_.fd(), POLLIN, 0}};
            if (::poll(wanted, 2, -1) < 0)
                die("poll", errno);
            follow();
            more = commands_.take([this](const std::string &line) { say(obey(line)); });
        }
    }

private:
    void follow()
    {
        if (holds_)
            return;
        if (const int status = net_.follow(); status != 0)
            die("follow", -status);
    }

    static void say(const std::string &text)
    {
        std::printf("%s\n", text.c_str());
        std::fflush(stdout);
    }

    std::string obey(const std::string &line)
    {
        std::istringstream words(line);
        std::string verb, name;
        words >> verb;
        if (verb == "hold" || verb == "follow") {
            holds_ = verb == "hold";
            return "ok";
        }
        follow(); // what the kernel had done before the question is in the answer
        if (verb == "generation")
            return std::to_string(net_.generation());
        if (verb == "neighbours")
            return std::to_string(net_.neighbour_generation());
        if (verb == "overruns")
            return std::to_string(net_.overruns());
        if (verb == "locals")
            return std::to_string(net_.addresses().size());
        words >> name;
        if (verb == "link")
            return tell_link(name);
        if (verb == "local")
            return std::to_string(net_.is_local(address_of(name)));
        if (verb == "route")
            return tell_route(name, words);
        const ether::Link *const link = net_.link(name);
        std::string address;
        words >> address;
        if (link == nullptr)
            return "ENODEV";
        if (verb == "neighbour")
            return tell_neighbour(net_.neighbour(link->index, address_of(address)));
        if (verb == "resolve") {
            const int status = net_.resolve(link->index, address_of(address));
            return status == 0 ? "ok" : strerrorname_np(-status);
        }
        return "EINVAL";
    }

    std::string tell_link(const std::string &name) const
    {
        const ether::Link *const link = net_.link(name);
        if (link == nullptr)
            return "none";
        return "mtu " + std::to_string(link->mtu) + " up " + std::to_string(link->up) + " carrier " +
               std::to_string(link->carrier) + " mac " + text_of(link->mac);
    }

    std::string tell_route(const std::string &destination, std::istringstream &words)
    {
        static constexpr const char *kKinds[] = {"unicast", "local", "broadcast", "multicast"};
        ether::RouteQuery query;
        query.destination = address_of(destination);
        std::string source;
        if (words >> source)
            query.source = address_of(source);
        ether::Route route;
        if (const int status = net_.route(query, route); status != 0)
            return strerrorname_np(-status);
        const ether::Link *const link = net_.link(route.interface);
        return std::string(kKinds[static_cast<unsigned>(route.kind)]) + " dev " + (link ? link->name : "none") +
               " via " + fabtest::text_of(route.next_hop) + " from " + fabtest::text_of(route.source) + " mtu " +
               std::to_string(route.mtu);
    }

    static std::string tell_neighbour(const ether::Neighbour &neighbour)
    {
        static constexpr const char *kStates[] = {"none", "resolving", "usable", "stale", "failed"};
        return std::string(kStates[static_cast<unsigned>(neighbour.state)]) + " " + text_of(neighbour.mac);
    }

    static inet::IpAddress address_of(const std::string &text)
    {
        inet::IpAddress address;
        if (!fabtest::parse_address(text, address))
            die(text.c_str(), EINVAL);
        return address;
    }

    NetState &net_;
    bool holds_ = false;
    fabtest::Commands commands_;
};

} // namespace

int main(int argc, char **argv)
{
    NetState net;
    if (const int status = NetState::open(net, argc > 1 ? std::atoi(argv[1]) : 0); status != 0)
        die("netlink", -status);
    std::printf("open\n");
    std::fflush(stdout);
    Watch(net).run();
}
