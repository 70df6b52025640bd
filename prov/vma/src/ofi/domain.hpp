// SPDX-License-Identifier: BSD-2-Clause
// The domain object: the device as one program opened it, with the promises it made (threading, progress,
// mr_mode).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include "ofi/address_format.hpp"
#include "ofi/fabric.hpp"

namespace vma::ofi {

struct Eq;

struct Domain {
    fid_domain fid{}; // first
    Fabric &fabric;
    std::atomic<int> refs{0}; // endpoints, queues, counters, registrations: each open one counts
    fi_threading threading = FI_THREAD_SAFE;
    fi_progress data_progress = FI_PROGRESS_MANUAL;
    std::uint64_t caps = 0;
    AddressFormat addresses; // of its address vectors, and of unknown sources
    int mr_mode = 0;         // as the program opened the domain
    bool virt_addr = false;  // RMA addresses are virtual addresses, not offsets
    bool prov_key = false;   // we choose the keys
    bool datagrams = false;  // opened for FI_EP_DGRAM or FI_EP_RDM: new senders come through the fabric's wait set
    Eq *eq = nullptr;        // bound for asynchronous events, or none

    void *mr_table = nullptr; // registrations, ofi/memory/mr.cpp's
    std::unique_ptr<DeviceDomain> device;

    explicit Domain(Fabric &owner) : fabric(owner) {}

    // Whether calls on the domain's objects may come from two threads at once. The other models keep threads apart at
    // endpoints or completions only, while a queue and its endpoints share state.
    bool needs_locks() const noexcept { return threading != FI_THREAD_DOMAIN; }
};

inline Domain &domain_of(fid_domain *fid) noexcept
{
    return *reinterpret_cast<Domain *>(fid);
}

} // namespace vma::ofi
