// SPDX-License-Identifier: BSD-2-Clause
// One RDMA device as a program opened it: its context and protection domain, what happens to the device meanwhile, and
// the registrations of memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ofi/domain.hpp"
#include "ofi/memory/device_mr.hpp"
#include "verbs/manager.hpp"
#include "verbs/nic.hpp"
#include "verbs/nic_clock.hpp"

namespace vma::verbs {

class NicDomain final : public ofi::DeviceDomain
{
public:
    NicDomain(Manager &manager, const Nic &nic) noexcept : manager_(manager), nic_(nic) {}
    ~NicDomain() override;
    // 0 or a negative fi_errno. With the manager's mutex held.
    int open() noexcept;

    const Nic &nic() const noexcept { return nic_; }
    ibv_context *context() const noexcept { return context_; }
    ibv_pd *pd() const noexcept { return pd_; }
    const NicClock &clock() const noexcept { return clock_; }

    std::atomic<std::size_t> fast_places{0}; // endpoints with a short-message ring

private:
    void read_event() noexcept;

    Manager &manager_;
    const Nic &nic_;
    ibv_context *context_ = nullptr;
    ibv_pd *pd_ = nullptr;
    NicClock clock_;
    EventSource source_;
};

inline NicDomain &nic_domain(ofi::Domain &domain) noexcept
{
    return static_cast<NicDomain &>(*domain.device);
}

int open_nic_domain(Manager &manager, ofi::Domain &domain, const fi_info &info) noexcept;

// `access` as ibv_reg_mr(3) has it. 0 or a negative fi_errno, logged.
int register_memory(ibv_pd *pd, void *memory, std::size_t bytes, int access, ibv_mr *&mr) noexcept;

// The local key of a descriptor, 0 without one.
inline std::uint32_t local_key(void *descriptor) noexcept
{
    return descriptor != nullptr ? static_cast<const ofi::DeviceMr *>(descriptor)->local_key : 0;
}

extern fi_ops_mr registration_ops;

} // namespace vma::verbs
