// SPDX-License-Identifier: BSD-2-Clause
// What two endpoints tell each other in the private data of a connection's set-up, in front of the program's own. A
// peer without it (another provider, an older version) is not one of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vma::verbs {

inline constexpr std::uint8_t kWireMagic = 0xf1;
inline constexpr std::uint8_t kWireVersion = 1;

struct ConnectHeader {
    std::uint8_t magic = kWireMagic;
    std::uint8_t version = kWireVersion;
    std::uint8_t length = 0;         // bytes of the program's data
    std::uint8_t notes = 0;          // 2^notes of them may be under way to us
    std::uint32_t block_key = 0;     // of the memory that the peer may write (region.hpp)
    std::uint64_t block_address = 0; // all of it in the byte order of this machine: its peers are of the same kind
    std::uint32_t block_length = 0;  // of the region in it, 0: there is none
};
static_assert(sizeof(ConnectHeader) == 24);

inline constexpr std::size_t kRequestRoom = 56; // bytes of private data in an RDMA_PS_TCP request (rdma_connect(3))
inline constexpr std::size_t kCmDataSize = kRequestRoom - sizeof(ConnectHeader);

struct ConnectMessage {
    ConnectHeader header;
    std::uint8_t data[kCmDataSize];

    // False unless `length` bytes at `bytes` begin with a whole header of our kind.
    [[nodiscard]] bool parse(const void *bytes, std::size_t length_) noexcept
    {
        if (length_ < sizeof header)
            return false;
        std::memcpy(&header, bytes, sizeof header);
        if (header.magic != kWireMagic || header.version != kWireVersion || header.length > sizeof data ||
            header.length > length_ - sizeof header)
            return false;
        std::memcpy(data, static_cast<const std::uint8_t *>(bytes) + sizeof header, header.length);
        return true;
    }
    // `length` is at most kCmDataSize.
    void set_data(const void *bytes, std::size_t length) noexcept
    {
        header.length = static_cast<std::uint8_t>(length);
        if (length > 0)
            std::memcpy(data, bytes, length);
    }
    std::uint8_t size() const noexcept { return static_cast<std::uint8_t>(sizeof header + header.length); }
};

} // namespace vma::verbs
