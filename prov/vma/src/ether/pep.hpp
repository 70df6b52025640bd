// SPDX-License-Identifier: BSD-2-Clause
// Passive endpoints: an address of a NIC, and the connections that come to it.
#pragma once

#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include "ether/fabric.hpp"
#include "ofi/eq.hpp"
#include "ofi/info/info.hpp"

namespace vma::ether {

struct PassiveEndpoint {
    fid_pep fid{}; // first
    EtherFabric &ether_fabric;
    std::shared_ptr<PortContext> port_context;
    // Protected by the port context's lock.
    ofi::Eq *eq = nullptr;
    ofi::InfoPtr info;     // as it was opened: the model of its requests' infos
    inet::Endpoint local;  // what is reserved
    bool reserved = false; // and so it has an address
    bool listening = false;
    inet::ListenerId listener;
    inet::TcpSettings settings;
    int backlog = 128;
    int untaken = 0; // requests that no endpoint has taken: the backlog counts them too

    explicit PassiveEndpoint(EtherFabric &owner) noexcept : ether_fabric(owner) {}

    // What ofi/passive_endpoint.hpp asks for; lock() is the port context's. A connection carries no data of the
    // program's.
    static constexpr std::size_t kMostData = 0;
    static int close(fid_t fid);
    ofi::Fabric &fabric() const noexcept { return ether_fabric.fabric(); }
    core::SpinGuard lock() const noexcept { return core::SpinGuard(port_context->lock()); }
    int prepare() noexcept { return ether_fabric.port_context_of(*info, port_context); }
    ofi::Address own_address() const noexcept;
    int get_option(int name, void *value, std::size_t *length) noexcept;
    int set_option(int name, const void *value, std::size_t length) noexcept;
    void set_backlog(int requests) noexcept;
    int listen() noexcept;
    int reject(fid_t handle, const void *param, std::size_t length) noexcept;

    // With the port context's lock held.
    void on_acceptable() noexcept;
    void taken() noexcept; // one request less
    int set_address(const ofi::Address &wanted) noexcept;

private:
    bool tell(inet::ConnectionId connection) noexcept;
};

// Ends what a request stands for. With the port context's lock held.
void refuse(Request &request) noexcept;

int open_passive_endpoint(EtherFabric &fabric, fi_info *info, fid_pep **pep, void *context) noexcept;

} // namespace vma::ether
