// SPDX-License-Identifier: BSD-2-Clause
// Memory on the NIC as a place for what is to be sent (FI_OPT_VMA_DEVICE_MEMORY): the device then fetches nothing over
// the bus. A ring: what is put in first is free first, when the device has sent it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_ext_vma.h>

#include "verbs/table.hpp"

namespace vma::verbs {

// Not thread-safe but for release(): the endpoint's tx_lock protects it.
class DeviceMemory
{
public:
    DeviceMemory() noexcept = default;
    DeviceMemory(const DeviceMemory &) = delete;
    DeviceMemory &operator=(const DeviceMemory &) = delete;
    ~DeviceMemory();

    // Where the device has none (left), one line is logged, and everything goes on without.
    void open(ibv_pd *pd, std::size_t bytes) noexcept;
    bool there() const noexcept { return mr_ != nullptr; }

    // Copies the pieces there: false where there is no room now, which is counted. Else `place` is what to send, and
    // `end` what to release() when it is sent. `done` is how far release() has come.
    bool put(const ibv_sge *list, int count, std::uint64_t done, ibv_sge &place, std::uint64_t &end) noexcept;
    // `end` of put() is a quarter beyond the last one this said yes to: the device should tell when it is sent.
    bool is_quarter_used(std::uint64_t end) noexcept
    {
        if (end - told_ < size_ / 4)
            return false;
        told_ = end;
        return true;
    }
    fi_vma_device_memory statistics() const noexcept { return statistics_; }

private:
    bool find_room(std::uint64_t length, std::uint64_t done, std::uint64_t &offset) noexcept;

    ibv_dm *dm_ = nullptr;
    ibv_mr *mr_ = nullptr;
    std::uint64_t size_ = 0;
    std::uint64_t head_ = 0; // bytes ever put, with those skipped at the end of the memory
    std::uint64_t told_ = 0; // of `head_`
    fi_vma_device_memory statistics_{};
};

} // namespace vma::verbs
