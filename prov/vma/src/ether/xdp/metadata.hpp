// SPDX-License-Identifier: BSD-2-Clause
// What stands before a frame that AF_XDP sends, for the kernel or the device to act on (Linux 6.8; the flag of its
// memory's registration 6.11): Documentation/networking/xsk-tx-metadata.rst. The headers of older systems don't have
// it.
#pragma once

#include <cstdint>

namespace vma::ether {

// linux/if_xdp.h: struct xsk_tx_metadata, without the completion's half.
struct XdpSendMetadata {
    std::uint64_t flags = 0;
    std::uint16_t checksum_start = 0;  // offset of the transport's header in the frame, bytes
    std::uint16_t checksum_offset = 0; // of its field, from there
    std::uint32_t reserved = 0;
    std::uint64_t launch_time = 0; // not asked for
    std::uint64_t padding = 0;     // the frame's own alignment stays
};
static_assert(sizeof(XdpSendMetadata) == 32); // a multiple of 8 below 256, and the kernel's 24 at least

// struct xdp_umem_reg as of Linux 6.8; an older kernel reads as much of it as it knows.
struct XdpMemory {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint32_t buffer_size = 0;
    std::uint32_t headroom = 0;
    std::uint32_t flags = 0;
    std::uint32_t send_metadata = 0; // bytes before each frame
};

inline constexpr std::uint32_t kXdpHeadroom = 256; // XDP_PACKET_HEADROOM, which the kernel keeps before each frame
inline constexpr std::uint32_t kXdpMemoryHasSendMetadata = 1 << 2; // XDP_UMEM_TX_METADATA_LEN
inline constexpr std::uint32_t kXdpSendMetadata = 1 << 1;          // XDP_TX_METADATA, of a descriptor
inline constexpr std::uint64_t kXdpSendChecksum = 1 << 1;          // XDP_TXMD_FLAGS_CHECKSUM

} // namespace vma::ether
