// SPDX-License-Identifier: BSD-2-Clause
// A record of a process's capture as the frame that the same bytes would be on a wire: Ethernet, IP and TCP or UDP
// headers are made from the addresses and from the bytes that went before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compat/src/stats/capture_layout.hpp"

namespace vma_dump {

struct Frame {
    const std::uint8_t *bytes;
    std::uint32_t captured; // of `length`
    std::uint32_t length;
};

// One record, copied out of the ring: what the process does to that from then on changes nothing here.
class Message
{
public:
    // `record` has record.size bytes, which another process may change meanwhile. False: it is none.
    bool take(const vma::stats::CaptureRecord &head, const vma::stats::CaptureRecord *record);
    const vma::stats::CaptureRecord &head() const { return head_; }
    // Writes the headers. At most `snap` bytes of the frame are there. Until the next take().
    Frame frame(std::uint32_t snap);

private:
    static constexpr std::size_t kHeaders = 128; // room for the longest, 14 + 40 + 20

    vma::stats::CaptureRecord head_ = {};
    std::array<std::uint8_t, kHeaders + vma::stats::kMostPayload> room_ = {};
};

// Whether a record can be what it says, as far as its own numbers tell.
bool is_sound(const vma::stats::CaptureRecord &head);

} // namespace vma_dump
