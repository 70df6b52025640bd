// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/device_memory.hpp"

#include <cerrno>
#include <cstring>

#include "core/log.hpp"

namespace vma::verbs {

void DeviceMemory::open(ibv_pd *pd, std::size_t bytes) noexcept
{
    ibv_alloc_dm_attr attr{};
    attr.length = bytes;
    dm_ = ibv_alloc_dm(pd->context, &attr);
    if (dm_ != nullptr)
        mr_ = ibv_reg_dm_mr(pd, dm_, 0, bytes, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
    if (mr_ == nullptr) {
        VMA_WARN(ep_ctrl, "no %zu bytes of device memory (%s): sends go from the host's", bytes, std::strerror(errno));
        return;
    }
    size_ = bytes;
    statistics_.allocated = bytes;
}

DeviceMemory::~DeviceMemory()
{
    if (mr_ != nullptr)
        table()->dereg_mr(mr_);
    if (dm_ != nullptr)
        ibv_free_dm(dm_);
}

// In one piece: what is left at the end of the memory is skipped when it is too short.
bool DeviceMemory::find_room(std::uint64_t length, std::uint64_t done, std::uint64_t &offset) noexcept
{
    const std::uint64_t to_end = size_ - head_ % size_;
    const std::uint64_t start = length <= to_end ? head_ : head_ + to_end;
    if (length > size_ || start + length - done > size_)
        return false;
    offset = start % size_;
    head_ = start + length;
    return true;
}

bool DeviceMemory::put(const ibv_sge *list, int count, std::uint64_t done, ibv_sge &place, std::uint64_t &end) noexcept
{
    std::uint64_t length = 0;
    for (int i = 0; i < count; ++i)
        length += list[i].length;
    std::uint64_t offset = 0;
    const std::uint64_t before = head_;
    if (length == 0 || !find_room(length, done, offset)) {
        statistics_.out_of_buffer += length != 0;
        return false;
    }
    std::uint64_t at = offset;
    for (int i = 0; i < count; ++i) {
        if (ibv_memcpy_to_dm(dm_, at, reinterpret_cast<const void *>(list[i].addr), list[i].length) != 0) {
            head_ = before;
            return false;
        }
        at += list[i].length;
    }
    place = {.addr = offset, .length = static_cast<std::uint32_t>(length), .lkey = mr_->lkey};
    end = head_;
    statistics_.bytes += length;
    ++statistics_.packets;
    return true;
}

} // namespace vma::verbs
