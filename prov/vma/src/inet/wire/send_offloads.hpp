// SPDX-License-Identifier: BSD-2-Clause
// What a device does with frames that are sent, so that the stack needn't: which of it a device has, and what it is
// asked to do with one frame. The stack without a device does everything itself.
#pragma once

#include <cstdint>

#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

// By family of addresses.
struct SendOffloads {
    bool checksums_v4 =
        false; // of TCP and UDP: their field holds the sum of the pseudo-header alone then (RFC 9293, 3.1)
    bool checksums_v6 = false;
    // Bytes of TCP data that the device takes at a time and cuts into segments itself, where it computes their
    // checksums; at most kMostSegmented. 0: it doesn't.
    std::uint32_t segment_limit = 0;

    bool sums(const IpAddress &target) const
    {
        return (checksums_v4 || checksums_v6) && (target.is_v4() ? checksums_v4 : checksums_v6);
    }
    std::uint32_t limit(const IpAddress &target) const { return sums(target) ? segment_limit : 0; }
};

// Of one frame. Offsets are bytes.
struct FrameWork {
    std::uint16_t transport = 0; // where the header is whose checksum is left to the device; 0: the frame is complete
    std::uint16_t checksum = 0;  // where the field is in that header
    // Bytes of data of each segment that the frame is to be cut into, 0: it is one. Each gets the headers, with its own
    // sequence number, lengths, id and checksums; of the flags CWR stays with the first, PSH and FIN with the last.
    std::uint16_t segment = 0;
    std::uint16_t headers = 0; // before the data; only where it is cut
};

inline constexpr std::uint32_t kMostSegmented = 65535 - 100; // IP's length holds it, and both headers

inline constexpr std::uint16_t kTcpChecksumAt = 16;
inline constexpr std::uint16_t kUdpChecksumAt = 6;

} // namespace vma::inet
