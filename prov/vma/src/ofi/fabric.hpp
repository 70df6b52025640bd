// SPDX-License-Identifier: BSD-2-Clause
// The fabric object: one per fi_fabric() call. It holds the device's connection manager, whose wait descriptor every
// event queue of the fabric nests, and counts what is open under it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include "core/fd.hpp"
#include "ofi/device.hpp"

namespace vma::ofi {

struct Fabric {
    fid_fabric fid{}; // first: libfabric's pointer is ours
    std::atomic<int> refs{0};
    std::uint32_t generation = core::fork_generation();
    std::unique_ptr<DeviceFabric> device;

    // Reads what arrived on the links and posts the events. Never blocks, returns at once when another thread is at it.
    // Call it without an endpoint or queue lock held. A completion queue calls it every 64k empty polls or so, and
    // before it sleeps, so that a program that reads no event queue still learns of a peer's death.
    void cm_progress() noexcept
    {
        if (!orphaned())
            device->progress(false);
    }

    // Opened by the parent of this process: its descriptors are closed, its locks may be held by nobody's thread.
    bool orphaned() const noexcept { return generation != core::fork_generation(); }
};

inline Fabric &fabric_of(fid_fabric *fid) noexcept
{
    return *reinterpret_cast<Fabric *>(fid);
}

int open_fabric(fi_fabric_attr *attr, fid_fabric **fabric, void *context);
int open_domain(fid_fabric *fabric, fi_info *info, fid_domain **domain, void *context);

} // namespace vma::ofi
