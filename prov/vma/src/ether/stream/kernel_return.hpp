// SPDX-License-Identifier: BSD-2-Clause
// Segments that the NIC has taken from the wire, given to the kernel's TCP after all: by a raw socket to our own
// address, so they come by its loopback.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "core/fd.hpp"
#include "ether/nic/frame_taker.hpp"
#include "inet/wire/packet.hpp"
#include "inet/wire/types.hpp"

namespace vma::ether {

// Not thread-safe. Opens its socket, which takes CAP_NET_RAW, when it needs it.
class KernelReturn : public FrameTaker
{
public:
    explicit KernelReturn(const inet::Flow &flow) noexcept : flow_(flow) {}

    // A whole IP packet to flow.local, in parts. 0 or a negative errno.
    [[nodiscard]] int send(std::span<const iovec> parts) noexcept;

    // True: it was a segment of the flow, and the kernel has it, or has dropped it, as a wire may.
    bool take(std::span<const std::uint8_t> frame, const inet::FrameInfo &info) noexcept override;

private:
    void pass_on(inet::Bytes bytes, const inet::Packet &packet) noexcept;

    inet::Flow flow_;
    core::UniqueFd raw_;
};

} // namespace vma::ether
