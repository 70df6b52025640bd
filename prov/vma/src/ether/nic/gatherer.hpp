// SPDX-License-Identifier: BSD-2-Clause
// Frames that came in several buffers, put together: what is behind a queue takes a frame in one piece. One copy, of
// such frames only; those that came in one buffer never get here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace vma::ether {

// Not thread-safe: its queue's. What it is given may be of any length, and need not have an end: no more than kLongest
// bytes of a frame are kept, and a frame that is longer is thrown away as a whole.
class Gatherer
{
public:
    // Bytes: an IPv6 packet of the largest payload length (RFC 8200, 3), its Ethernet header and two VLAN tags.
    static constexpr std::uint32_t kLongest = 65'535 + 40 + 14 + 2 * 4;

    enum class Took {
        kPart,    // the frame goes on
        kFrame,   // it is whole: frame()
        kDropped, // its end has come, but it was too long, or broken
    };

    [[nodiscard]] int open() noexcept; // 0 or -ENOMEM. The memory is not touched before it is used

    // The frames given out so far are forgotten. One that has not come to its end yet goes on.
    void forget() noexcept
    {
        if (start_ != 0) [[unlikely]]
            restart();
    }
    bool is_gathering() const noexcept { return gathering_; }
    bool has_room() const noexcept { return kSize - start_ >= kLongest; } // for one more frame before forget()

    // The next part of a frame, the first one if none is being gathered; has_room(). `more`: another one follows.
    [[nodiscard]] Took take(std::span<const std::uint8_t> part, bool more) noexcept;
    void spoil() noexcept { broken_ = true; } // the frame of the next part: a part of it can't be read
    std::span<std::uint8_t> frame() const noexcept { return frame_; } // the last one, until forget()

private:
    static constexpr std::uint32_t kSize = 4 * kLongest; // bytes: a burst of frames of the usual jumbo size

    void restart() noexcept;

    std::unique_ptr<std::uint8_t[]> memory_;
    std::span<std::uint8_t> frame_;
    std::uint32_t start_ = 0; // of the frame that is being gathered, or comes next, in memory_
    std::uint32_t size_ = 0;  // of what is there of it
    bool gathering_ = false;
    bool broken_ = false;
};

} // namespace vma::ether
