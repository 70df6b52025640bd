// SPDX-License-Identifier: BSD-2-Clause
// Who uses what of the peer's bounce ring. The sender alone allocates; a share is free again when the peer has consumed
// its slot (and, for a read, when the bytes were taken out). Offsets only; the memory is elsewhere.
#pragma once

#include <cstdint>

#include "core/fifo.hpp"
#include "local/layout.hpp"

namespace vma::local {

class BounceRing
{
public:
    struct Share {
        std::uint64_t end;  // of the ring's use, counted since the beginning
        std::uint32_t slot; // position of the slot it belongs to
        std::uint32_t offset;
        std::uint32_t length;
        bool read;        // its bytes come from the peer
        std::uint64_t op; // number of the operation, and where in it the bytes belong
        std::uint64_t position;
    };

    // `length` contiguous bytes, at most kBounceChunk. False: no room now.
    bool allocate(std::uint32_t length, std::uint32_t &offset) noexcept
    {
        const std::uint64_t rounded = (length + 63U) & ~63U;
        std::uint64_t start = used_;
        if (start % kBounceSize + rounded > kBounceSize)
            start += kBounceSize - start % kBounceSize;
        if (start + rounded - freed_ > kBounceSize)
            return false;
        offset = static_cast<std::uint32_t>(start % kBounceSize);
        used_ = start + rounded;
        return true;
    }
    // Whether up to kIovLimit shares of `total` bytes together find room for certain.
    bool fits(std::uint64_t total) const noexcept
    {
        return used_ - freed_ + total + kBounceChunk + std::uint64_t{kIovLimit} * 64 <= kBounceSize;
    }
    // The share allocated last belongs to this slot. There are never more than slots.
    [[nodiscard]] bool assign(Share share) noexcept
    {
        share.end = used_;
        return shares_.push(share);
    }

    bool empty() const noexcept { return shares_.empty(); }
    const Share &front() noexcept { return shares_.front(); }
    void release_front() noexcept
    {
        freed_ = shares_.front().end;
        shares_.pop();
    }

private:
    core::Fifo<Share> shares_;
    std::uint64_t used_ = 0;
    std::uint64_t freed_ = 0;
};

} // namespace vma::local
