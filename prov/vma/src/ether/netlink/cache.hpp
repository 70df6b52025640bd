// SPDX-License-Identifier: BSD-2-Clause
// The network configuration of a namespace, followed while it changes: links, addresses, the neighbours that were asked
// for. Routes are asked of the kernel, which alone knows its rules, metrics, next hops and exceptions; a generation
// says when a kept answer may be wrong. For set-up and its repetition, not for each frame.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ether/netlink/objects.hpp"
#include "ether/netlink/socket.hpp"

namespace vma::ether {

struct RouteQuery {
    inet::IpAddress destination;
    inet::IpAddress source{}; // :: or 0.0.0.0: the kernel chooses
    unsigned interface = 0;   // 0: any (SO_BINDTODEVICE)
    std::uint32_t mark = 0;   // SO_MARK
    std::uint8_t traffic_class = 0;
};

// Not thread-safe: one owner, or a lock.
class NetState
{
public:
    static constexpr std::size_t kMaxNeighbours = 4096; // remembered; the longest unasked is forgotten

    // Reads everything once. 0 or negative errno. Needs no privilege. `receive_buffer`: bytes of events that the kernel
    // keeps between two calls of follow(), 0: 1 MiB.
    [[nodiscard]] static int open(NetState &opened, int receive_buffer = 0) noexcept;

    int fd() const noexcept { return events_.fd(); } // POLLIN: call follow()

    // Takes what has changed; where the kernel had to drop events, everything is read again. 0 or negative errno.
    [[nodiscard]] int follow() noexcept;

    // Goes up with each change of links, addresses, routes and rules: then a kept Route or Outlet must be asked for
    // again.
    std::uint64_t generation() const noexcept { return generation_; }
    // Goes up with each change of a neighbour that neighbour() was asked for, and with generation().
    std::uint64_t neighbour_generation() const noexcept { return neighbour_generation_; }
    std::uint64_t overruns() const noexcept { return overruns_; } // times that events were lost

    // Null if it isn't there. Good until follow().
    const Link *link(unsigned index) const noexcept;
    const Link *link(std::string_view name) const noexcept;
    std::span<const LocalAddress> addresses() const noexcept { return addresses_; }
    bool is_local(const inet::IpAddress &address) const noexcept; // usable, on any link

    // 0, or the errno that a program's connect() would get: -ENETUNREACH, -EHOSTUNREACH, -EACCES (prohibited), -EINVAL
    // (blackhole). One question to the kernel, some 10 us.
    [[nodiscard]] int route(const RouteQuery &query, Route &route) noexcept;

    bool outlet(unsigned interface, Outlet &outlet) const noexcept { return find_outlet(links_, interface, outlet); }

    // What is known of it; the kernel is asked the first time, and changes are followed from then on.
    [[nodiscard]] Neighbour neighbour(unsigned interface, const inet::IpAddress &address) noexcept;
    // Wishes that the kernel finds out its link address, or whether it is still there. 0 or negative errno: -EPERM
    // without CAP_NET_ADMIN. The outcome comes by follow().
    [[nodiscard]] int resolve(unsigned interface, const inet::IpAddress &address) noexcept;

private:
    struct Watched {
        Neighbour neighbour;
        std::uint64_t asked = 0;
    };
    struct Hash {
        std::size_t operator()(const NeighbourKey &key) const noexcept;
    };

    int read_all() noexcept;
    int dump(std::uint16_t type) noexcept;
    void take(const nlmsghdr &header, NetlinkBytes payload);
    void take_link(Link link, bool gone);
    void take_address(const LocalAddress &address, bool gone);
    void take_neighbour(NetlinkBytes payload, bool gone);
    Neighbour ask_neighbour(const NeighbourKey &key) noexcept;
    void forget_one_neighbour();
    void changed() noexcept;

    NetlinkSocket events_;
    NetlinkSocket questions_;
    std::vector<Link> links_;
    std::vector<LocalAddress> addresses_;
    std::unordered_map<NeighbourKey, Watched, Hash> neighbours_;
    std::uint64_t generation_ = 0;
    std::uint64_t neighbour_generation_ = 0;
    std::uint64_t overruns_ = 0;
    std::uint64_t asked_ = 0;
};

} // namespace vma::ether
