// SPDX-License-Identifier: BSD-2-Clause
// Received frames of an AF_XDP socket or of a raw queue pair that the program has on loan (fi_vma_lender): the kernel
// or the device gets them back when the program has given them back, and the memory stays until then if the queue is
// closed meanwhile.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "core/loan_list.hpp"
#include "ether/nic/frames.hpp"
#include "ether/nic/memory_map.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ether {

class LentFrames final : public fi_vma_lender
{
public:
    // Ends the owner's part.
    struct Leave {
        void operator()(LentFrames *frames) const noexcept { frames->leave(); }
    };
    using Owned = std::unique_ptr<LentFrames, Leave>;

    // nullptr: no memory. The first `count` buffers of the memory, which remains where it is, are received into; `most`
    // of them are lent at a time, with those that `elsewhere` are.
    static Owned make(const std::uint8_t *base, std::uint32_t frame_size, std::uint32_t count,
                      std::uint32_t most) noexcept
    {
        Owned made(new (std::nothrow) LentFrames(base, frame_size, count, most));
        return made && made->loans_.is_allocated() ? std::move(made) : nullptr;
    }

    // ---- the socket's side, one thread at a time
    bool may_lend(const std::uint8_t *data, std::size_t length, std::uint32_t elsewhere = 0) const noexcept
    {
        const std::uintptr_t offset = address(data) - address(base_);
        return offset < std::size_t{count_} * frame_size_ && offset % frame_size_ + length <= frame_size_ &&
               loans_.lent() + elsewhere < most_;
    }
    std::uint32_t lent() const noexcept { return loans_.lent(); } // frames; any thread
    // To one of those who get it; the frame is the socket's too until release().
    void lend(const std::uint8_t *data) noexcept
    {
        loans_.lend(index_of(data));
        users_.fetch_add(1, std::memory_order_relaxed);
    }
    // Around an offer. end_offer() lends if who kept it has not said so before.
    void begin_offer() noexcept { lent_ = false; }
    void end_offer(const std::uint8_t *data) noexcept
    {
        if (!lent_)
            lend(data);
    }
    // False: it is on loan, and comes back by collect().
    bool release(FrameIndex frame) noexcept { return loans_.release(frame); }
    template <typename Take> void collect(Take take) noexcept { loans_.collect(take); }
    // The socket is closed: from here on the memory is kept here.
    void keep(MemoryMap memory) noexcept { memory_ = std::move(memory); }

private:
    LentFrames(const std::uint8_t *base, std::uint32_t frame_size, std::uint32_t count, std::uint32_t most) noexcept
        : fi_vma_lender{end_loan, begin_loan}, base_(base), frame_size_(frame_size), count_(count), most_(most),
          loans_(count)
    {
    }
    ~LentFrames() = default;

    static std::uintptr_t address(const void *place) noexcept { return reinterpret_cast<std::uintptr_t>(place); }
    FrameIndex index_of(const std::uint8_t *data) const noexcept
    {
        return static_cast<FrameIndex>((address(data) - address(base_)) / frame_size_);
    }
    static void begin_loan(fi_vma_lender *lender, const void *payload, std::size_t)
    {
        LentFrames &self = *static_cast<LentFrames *>(lender);
        self.lend(static_cast<const std::uint8_t *>(payload));
        self.lent_ = true;
    }
    static void end_loan(fi_vma_lender *lender, const void *payload, std::size_t)
    {
        LentFrames &self = *static_cast<LentFrames *>(lender);
        self.loans_.give_back(self.index_of(static_cast<const std::uint8_t *>(payload)));
        self.leave();
    }
    void leave() noexcept
    {
        if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

    const std::uint8_t *const base_;
    const std::uint32_t frame_size_;
    const std::uint32_t count_;
    const std::uint32_t most_;
    core::LoanList<FrameIndex> loans_;
    std::atomic<std::uint32_t> users_{1}; // the socket, and each loan
    bool lent_ = false;                   // since begin_offer()
    MemoryMap memory_;
};

} // namespace vma::ether
