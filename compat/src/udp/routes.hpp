// SPDX-License-Identifier: BSD-2-Clause
// Where the datagrams of one socket go, by destination: to the endpoint of a process on this host, or to the kernel. A
// route is what was found out when its destination was looked up; it holds until the names change, or a tick has passed
// in which nobody has looked whether it does (route_looks.cpp).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_ext_vma.h>

#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "compat/src/rendezvous/names.hpp"
#include "compat/src/udp/kernel_sent.hpp"
#include "compat/src/udp/wire.hpp"

namespace vma::sock {
struct Device;
}

namespace vma::sock::udp {

// The destination as the program gives it; all zeros for that of a connected socket.
struct Destination {
    std::uint64_t words[4] = {};

    // False: not an internet address.
    bool assign(const sockaddr *address, socklen_t length)
    {
        if (address == nullptr)
            return true;
        if (length < sizeof(sa_family_t))
            return false;
        if (address->sa_family == AF_INET && length >= sizeof(sockaddr_in)) {
            std::memcpy(words, address, sizeof words[0]); // family, port, address: no padding
            return true;
        }
        if (address->sa_family != AF_INET6 || length < sizeof(sockaddr_in6))
            return false;
        std::memcpy(words, address, sizeof(sockaddr_in6));
        return true;
    }
    bool operator==(const Destination &) const = default;
    bool is_connected() const { return words[0] == 0; }
};

enum class Way : std::uint8_t {
    kUnknown,
    kKernel,
    kReceiver, // of another process, or another socket of this one
    kGroup,    // all of this host that are in a multicast group
    kPort,     // of another host, by an Ethernet port
};

// A socket of this host that takes datagrams by the endpoint of its process.
struct Receiver {
    Identity who;
    fi_addr_t endpoint = FI_ADDR_NOTAVAIL;
    std::uint64_t data = 0;    // CQ data: see wire.hpp
    std::uint32_t lost = 0;    // since the last one that was placed
    bool own = false;          // of this process: no endpoint is needed
    bool stands_still = false; // is behind, and did not catch up in some time
};

struct Group {
    std::vector<Receiver> receivers;
    bool leaves_host = false; // the wire gets it, too
    bool by_port = false;     // from a port, else from the kernel
};

// So many ticks a route to a receiver holds that nobody has looked at. The helper thread looks in each, unless a sender
// has the lock.
inline constexpr std::int32_t kReceiverTicks = 2;

struct Route {
    Destination to;
    Way way = Way::kUnknown;
    bool used = false;      // this place of the table
    std::uint8_t idle = 0;  // looks of the helper thread since the last datagram by the endpoint
    std::uint8_t looks = 0; // in turn that found the kernel behind, before the way changes
    std::uint8_t header_length = 0;
    std::uint32_t generation = 0;
    std::uint32_t tick = 0;
    std::uint32_t kernel_sends = 0; // of the socket, at the last datagram by an endpoint
    std::uint32_t kernel_sent = 0;  // to the destination, by whichever socket, at our last look
    SentPlace sent_place = kNoPlace;
    std::uint32_t followed_tick = ~0U; // of that look, if others had sent something
    Receiver receiver;
    // By a port: the way itself, or that of a group to the wire.
    Device *port = nullptr;
    fi_vma_udp *tap = nullptr;
    fi_vma_udp_to by_port = {};
    bool to_group = false;
    bool is_watched = false;   // nobody of this host is in the group, as long as memberships are what they were
    bool after_kernel = true;  // the last datagram went by the kernel
    bool after_port = false;   // by the port
    std::uint32_t members = 0; // generation of the memberships
    std::unique_ptr<Group> group;
    std::vector<Identity> wished; // whom wishes were left for
    std::uint8_t header[kIpv6Header] = {};
};

// Those of one socket; its tx_lock held.
class Routes
{
public:
    // nullptr: there is none.
    Route *find(const Destination &to)
    {
        if (last_ != nullptr && last_->to == to) [[likely]]
            return last_;
        last_ = peek(to);
        return last_;
    }
    Route *peek(const Destination &to); // the same, for somebody else than its sender
    Route *add(const Destination &to);  // nullptr: no memory. Other routes move
    void clear();                       // wishes are withdrawn
    template <typename Visit> void each(Visit visit)
    {
        for (std::uint32_t i = 0; i < capacity_; ++i)
            if (table_[i].used)
                visit(table_[i]);
    }

private:
    Route &place_of(const Destination &to);

    std::unique_ptr<Route[]> table_;
    std::uint32_t capacity_ = 0; // power of two
    std::uint32_t count_ = 0;
    Route *last_ = nullptr;
};

} // namespace vma::sock::udp
