// SPDX-License-Identifier: BSD-2-Clause
// Counters: the number of operations that completed, and of those that failed. Reading one makes progress on the queues
// of the endpoints it is bound to, since nobody else may be looking at them.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include "core/mutex.hpp"
#include "ofi/peer/abi.hpp"

namespace vma::ofi {

struct Domain;

// What can be asked to make progress: a device's completion queue.
struct ProgressSource {
    void *object;
    void (*progress)(void *object) noexcept;
    // A descriptor that becomes readable when progress() has something to do, or -1 when it has already.
    int (*arm)(void *object) noexcept;

    friend bool operator==(const ProgressSource &, const ProgressSource &) = default;
};

struct Cntr {
    fid_cntr fid{}; // first
    Domain &domain;
    std::atomic<std::uint64_t> value{0};
    std::atomic<std::uint64_t> errors{0};
    std::atomic<int> refs{0}; // bindings

    peer::Cntr *owners = nullptr; // with FI_PEER: the owner's, which counts instead

    explicit Cntr(Domain &owner) noexcept : domain(owner) {}

    void count() noexcept
    {
        if (owners != nullptr) [[unlikely]]
            owners->owner_ops->inc(owners);
        else
            value.fetch_add(1, std::memory_order_release); // who reads it finds what was counted
    }
    void count_error() noexcept
    {
        if (owners != nullptr) [[unlikely]]
            owners->owner_ops->incerr(owners);
        else
            errors.fetch_add(1, std::memory_order_release);
    }

    // Each binding adds its sources once and takes them away again.
    void add_source(const ProgressSource &source) noexcept;
    void remove_source(const ProgressSource &source) noexcept;
    void progress() noexcept;

    core::Mutex mutex;
    std::vector<ProgressSource> sources; // protected by mutex
};

inline Cntr &cntr_of(fid *fid) noexcept
{
    return *reinterpret_cast<Cntr *>(fid);
}

int open_cntr(Domain &domain, fi_cntr_attr *attr, fid_cntr **cntr, void *context) noexcept;

} // namespace vma::ofi
