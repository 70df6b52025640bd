// SPDX-License-Identifier: BSD-2-Clause
// The region of an endpoint (FI_OPT_VMA_REGION): memory that the peer writes by RDMA, a mirror of the peer's own on
// this side, and the notes that tell of a write. An endpoint with a region takes no receives of the program: they are
// the notes'.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <sys/uio.h>

#include "verbs/table.hpp"
#include "verbs/wire.hpp"

namespace vma::verbs {

// Registered memory of its own, zeroed; pages of it come when they are used, or when the device pins them.
class Pages
{
public:
    Pages() noexcept = default;
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;
    ~Pages();
    // 0 or a negative fi_errno, logged.
    int make(ibv_pd *pd, std::size_t bytes, int access) noexcept;
    // The memory stays when this ends, no longer registered; the caller unmaps it.
    void keep() noexcept { kept_ = true; }

    std::byte *bytes() const noexcept { return bytes_; }
    std::size_t size() const noexcept { return size_; }
    std::uint32_t local_key() const noexcept { return mr_->lkey; }
    std::uint32_t remote_key() const noexcept { return mr_->rkey; }
    explicit operator bool() const noexcept { return mr_ != nullptr; }

private:
    std::byte *bytes_ = nullptr;
    std::size_t size_ = 0;
    ibv_mr *mr_ = nullptr;
    bool kept_ = false;
};

// What a note says that does not fit into the immediate data of a write.
struct Note {
    std::uint64_t data;
    std::uint64_t length;
};

inline constexpr std::uint64_t kShortData = UINT64_C(1) << 31; // below it, data travels as immediate
inline constexpr std::size_t kMaxRegion = std::size_t{1} << 30;
inline constexpr std::size_t kControlBytes = 4096; // in front of the region
inline constexpr std::size_t kReservedSends = 4;   // of the send queue, for what the device itself tells the peer

// The first words of the block, which the peer writes.
struct Control {
    std::atomic<std::uint64_t> taken; // of our notes
};

struct RegionLink {
    Pages block; // Control, then the region
    Pages notes; // one for each receive that is posted
    Pages mirror;
    std::size_t length = 0; // of our region
    std::size_t peer_length = 0;
    std::uint64_t peer_address = 0; // of its block
    std::uint32_t peer_key = 0;
    std::uint64_t room = 0;  // notes that we may have at the peer
    std::uint64_t limit = 0; // notes that the peer may have here; a power of two

    std::uint64_t sent = 0; // notes; protected by the endpoint's tx_lock
    // Protected by the lock of the receiving queue.
    std::uint64_t taken = 0;
    std::uint64_t told = 0; // of them, the peer knows

    int open(ibv_pd *pd, std::size_t region, std::size_t receives) noexcept;
    void describe(ConnectHeader &header) const noexcept;
    // Takes what the peer's header says, and makes the mirror. 0 or a negative fi_errno.
    int join(ibv_pd *pd, const ConnectHeader &header) noexcept;

    std::byte *base() const noexcept { return block.bytes() + kControlBytes; }
    Control &control() const noexcept { return *reinterpret_cast<Control *>(block.bytes()); }
    Note *note(std::uint64_t number) const noexcept
    {
        return reinterpret_cast<Note *>(notes.bytes()) + (number & (limit - 1));
    }
    // Notes that the peer has room for. A peer that lies about them waits for its receives, not we.
    std::uint64_t left() const noexcept
    {
        const std::uint64_t out = sent - control().taken.load(std::memory_order_acquire);
        return out <= room ? room - out : 0;
    }
};

} // namespace vma::verbs
