// SPDX-License-Identifier: BSD-2-Clause
// What the endpoints of a process share on one NIC: its NetIf behind a lock, the ports that are reserved in the kernel
// and steered here, and the connections that go on after their endpoints were closed. One a NIC, however many fabrics
// use it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/fd.hpp"
#include "core/spinlock.hpp"
#include "ether/guardian.hpp"
#include "ether/net_if.hpp"

namespace vma::ether {

class Datagrams;
struct Stream;

class PortContext
{
public:
    ~PortContext();

    // The NIC's, a new one if nobody has it open. 0 or a negative errno as NetIf::open().
    [[nodiscard]] static int open(const char *interface, std::shared_ptr<PortContext> &port_context) noexcept;

    // Who calls anything below but progress() and wait_fd() holds it.
    core::SpinLock &lock() noexcept { return lock_; }
    NetIf &net_if() noexcept { return *net_if_; }
    inet::Tcp &tcp() noexcept { return net_if_->tcp(); }

    // Moves frames and time on, and tells endpoints. Returns at once where another thread is at it.
    void progress() noexcept;
    // The same, and after it wait_fd() becomes readable also for what only time brings.
    void prepare_to_sleep() noexcept;
    // progress() with the lock held.
    void turn() noexcept;
    int wait_fd() const noexcept { return net_if_->wait_fd(); }
    // What processes that share the NIC ask, where no other thread is at it. service_fd() is readable when there is
    // such; -1: it is not shared.
    void serve() noexcept;
    int service_fd() const noexcept { return net_if_->service_fd(); }

    // Makes frames of a protocol to `local` ours, and keeps the port from the kernel's sockets; port 0 is replaced by a
    // free one. Each success needs a release(). 0 or negative errno: that of bind(), -EADDRNOTAVAIL for an address that
    // is not of this NIC, and kFlowTableFull. Several connections of one local address share it.
    [[nodiscard]] int reserve(inet::Protocol protocol, inet::Endpoint &local) noexcept;
    // One user more of what is reserved: a connection that a listener at `local` has accepted.
    void share(inet::Protocol protocol, const inet::Endpoint &local) noexcept;
    void release(inet::Protocol protocol, const inet::Endpoint &local) noexcept;
    // The kernel's socket that keeps the port, -1 if it isn't reserved. It gets what the steering program leaves to the
    // kernel: of UDP, fragments.
    int kernel_socket(inet::Protocol protocol, const inet::Endpoint &local) noexcept;

    // Makes frames ours whose port is not reserved here: the kernel's socket has it. 0 or negative errno:
    // -EADDRNOTAVAIL, kFlowTableFull, -EEXIST. Each success needs an unsteer() with the same VLANs.
    [[nodiscard]] int steer(const inet::Flow &flow, inet::Protocol protocol, Vlans &vlans) noexcept;
    void unsteer(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans) noexcept;

    // Streams whose connections the kernel would carry on: they end, as with FI_SHUTDOWN, when no route leads to the
    // peer by this NIC any more.
    void watch_route(Stream &stream) noexcept { offloaded_.push_back(&stream); }
    void unwatch_route(Stream &stream) noexcept;

    // The guardian is told of a connection that is established, and of one that is over or the kernel's again.
    void guard(inet::ConnectionId id) noexcept;
    void unguard(const inet::Flow &flow) noexcept { guardian_.remove(flow); }

    // Who gets what comes for a UDP socket of the stack, and by its kernel socket; nullptr: nobody any more.
    [[nodiscard]] bool set_datagrams(inet::UdpSocketId id, int kernel_socket, Datagrams *endpoint) noexcept;

    // The endpoint of this connection is closed: what is reserved for it is released once the stack knows nothing of
    // it. One that was offloaded has nothing reserved: it is steered by itself.
    void outlive(const inet::Flow &flow, bool offloaded, Vlans vlans) noexcept;

private:
    struct Place {
        inet::Protocol protocol;
        inet::Endpoint local;
        bool operator==(const Place &) const = default;
    };
    struct Reservation {
        Vlans vlans;
        core::UniqueFd socket; // bound in the kernel
        std::uint32_t users = 0;
    };
    struct Closed {
        inet::Flow flow;
        bool offloaded;
        Vlans vlans;
    };
    struct Hash {
        std::size_t operator()(const Place &place) const noexcept;
    };
    using Reservations = std::unordered_map<Place, Reservation, Hash>;

    PortContext() noexcept = default;
    void dispatch() noexcept;
    void tell_lost_peers() noexcept;
    void look_after_closed(inet::Nanos now) noexcept;
    void read_kernel_sockets(inet::Nanos now) noexcept;
    void finish() noexcept;
    Reservations::iterator find(const Place &place) noexcept;
    int find_vlans(const inet::IpAddress &local, Vlans &vlans) noexcept;

    core::SpinLock lock_;
    std::unique_ptr<NetIf> net_if_;
    Guardian guardian_;
    Reservations reservations_;
    std::vector<Closed> closed_; // connections without an endpoint
    std::vector<Stream *> offloaded_;
    std::size_t closed_at_ = 0;          // where the next look begins
    inet::Nanos next_look_ = 0;          // at those
    std::vector<Datagrams *> datagrams_; // by the stack's number of their sockets
    unsigned datagrams_open_ = 0;
    core::UniqueFd kernel_sockets_; // epoll, of those of datagrams
    inet::Nanos next_read_ = 0;     // of those
};

} // namespace vma::ether
