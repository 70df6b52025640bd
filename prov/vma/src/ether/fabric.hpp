// SPDX-License-Identifier: BSD-2-Clause
// The device's part of an open fabric: the port contexts that its objects use, and the connection requests that no
// endpoint has taken yet.
#pragma once

#include <memory>
#include <unordered_set>
#include <vector>

#include <rdma/fabric.h>

#include "core/fd.hpp"
#include "core/mutex.hpp"
#include "ether/port_context.hpp"
#include "ofi/device.hpp"
#include "ofi/domain.hpp"
#include "ofi/fabric.hpp"

namespace vma::ether {

class Datagrams;
struct PassiveEndpoint;

// The handle in the info of FI_CONNREQ: a connection that is there already, as TCP's are.
struct Request {
    fid handle{}; // first
    std::shared_ptr<PortContext> port_context;
    PassiveEndpoint *pep = nullptr; // nullptr once that is closed
    inet::ConnectionId connection;
    inet::Flow flow;
};

class EtherFabric final : public ofi::DeviceFabric
{
public:
    explicit EtherFabric(ofi::Fabric &fabric) noexcept : fabric_(fabric) {}
    static std::unique_ptr<ofi::DeviceFabric> open(ofi::Fabric &fabric, int *error) noexcept;
    static void open_libraries() noexcept; // fi_ops_vma_process

    // After progress() with `wait`, wait_fd() becomes readable also for what only time brings.
    void progress(bool wait) noexcept override;
    int wait_fd() const noexcept override { return wait_set_.get(); }
    void serve() noexcept override;
    int service_fd() const noexcept override { return service_set_.get(); }
    int domain(ofi::Domain &domain, const fi_info &info) noexcept override;
    int passive_ep(fi_info *info, fid_pep **pep, void *context) noexcept override;
    int endpoint(ofi::Domain &domain, fi_info *info, fid_ep **ep, void *context) noexcept override;
    int shared_receive(ofi::Domain &domain, fi_rx_attr *attr, fid_ep **ep, void *context) noexcept override;
    int completion_queue(ofi::Domain &domain, fi_cq_attr *attr, fid_cq **cq, void *context) noexcept override;

    void *ops(const char *name) noexcept override;

    ofi::Fabric &fabric() const noexcept { return fabric_; }

    // The port context of the NIC that the info names. 0 or a negative fi_errno.
    int port_context_of(const fi_info &info, std::shared_ptr<PortContext> &port_context) noexcept;

    // With the lock of the port context held. A request is the fabric's until it is taken.
    Request *add_request(const std::shared_ptr<PortContext> &port_context) noexcept; // nullptr: no memory
    // Nothing unless it is one of that port context.
    std::unique_ptr<Request> take_request(const PortContext &port_context, fid_t handle) noexcept;
    void leave_requests(const PassiveEndpoint &pep) noexcept; // a closing one's live on without it

private:
    ofi::Fabric &fabric_;
    core::Mutex mutex_; // protects what follows; under it locks of port contexts may be taken, not the other way round
    std::vector<std::shared_ptr<PortContext>> port_contexts_;
    core::SpinLock requests_lock_; // innermost
    std::unordered_set<Request *> requests_;
    core::UniqueFd wait_set_;    // epoll
    core::UniqueFd service_set_; // epoll, of what processes that share NICs ask
};

inline EtherFabric &ether_fabric_of(ofi::Fabric &fabric) noexcept
{
    return static_cast<EtherFabric &>(*fabric.device);
}

// A NIC as one program opened it.
struct EtherDomain final : ofi::DeviceDomain {
    std::shared_ptr<PortContext> port_context;
};

inline PortContext &port_context_of(ofi::Domain &domain) noexcept
{
    return *static_cast<EtherDomain &>(*domain.device).port_context;
}

} // namespace vma::ether
