// SPDX-License-Identifier: BSD-2-Clause
// The ring that a process writes its messages to while somebody listens: a memory file that it makes, and vma_dump
// maps. The process believes nothing that it reads there: it reads two words, and the worst that these can do is that
// records are lost.
//
// A record begins at a multiple of kCaptureCell behind the header, and may reach over the end of the ring to its
// beginning: whoever maps it maps the ring twice, one behind the other. CaptureRecord::size is written last. Who has
// read a record clears the first word of each of its cells before it moves `taken`, so that a word that is not 0 where
// the next record begins is always that record's size. Host byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "compat/src/stats/layout.hpp"

namespace vma::stats {

inline constexpr std::uint64_t kCaptureMagic = 0x31504143414d56; // "VMACAP1"
inline constexpr std::size_t kCaptureStart = 65536;              // of the ring in the file: on a page, however large
inline constexpr std::size_t kCaptureCell = 32;
inline constexpr std::uint32_t kLeastCapture = 1 << 20; // bytes of a ring; a power of two, as kMostCapture
inline constexpr std::uint32_t kMostCapture = 1 << 28;
inline constexpr std::uint32_t kMostPayload = 65160; // of a record: with all headers it fits into an IP packet

struct alignas(kLine) CaptureHeader {
    std::uint64_t magic;
    std::uint32_t pid;
    std::uint32_t ring_size; // bytes
    std::uint32_t most;      // bytes of a payload that are copied
    std::uint32_t ended;     // nothing is added any more
    // By the listener.
    alignas(kLine) std::uint64_t taken; // bytes since the beginning
    std::uint32_t heard;                // 1: it has the lock, or had it
    std::uint32_t reserved;
    // Records that found no room; added to atomically.
    alignas(kLine) std::uint64_t dropped;
};

enum CaptureFlag : std::uint16_t {
    kCaptureOut = 1, // the program sent it
    kCaptureUdp = 2,
};

struct CaptureRecord {
    std::uint32_t size;     // of the record, a multiple of kCaptureCell; written last
    std::uint32_t length;   // of the program's bytes
    std::uint32_t copied;   // of these: they follow
    std::uint16_t flags;    // CaptureFlag
    std::uint8_t way;       // of layout.hpp's Way
    std::uint8_t ring;      // one more than the place of its device's ring, 0: none
    std::uint64_t time_ns;  // CLOCK_REALTIME
    std::uint64_t before;   // bytes of the stream that went the same way before these
    std::uint64_t other;    // that went the other way
    std::uint8_t local[16]; // in6_addr, IPv4 as ::ffff:a.b.c.d
    std::uint8_t peer[16];
    std::uint16_t local_port; // host byte order
    std::uint16_t peer_port;
    std::int32_t fd;
    std::uint32_t use; // numbers the sockets that had its record
    std::uint32_t thread;
    std::uint32_t reserved[2];
};
static_assert(sizeof(CaptureRecord) == 3 * kCaptureCell && std::is_trivially_copyable_v<CaptureRecord>);

// Bytes of the file. Its mapping has the ring a second time behind that.
inline constexpr std::size_t capture_file_size(std::size_t ring)
{
    return kCaptureStart + ring;
}

// Of a record with so many bytes of a message.
inline constexpr std::uint32_t capture_record_size(std::uint32_t copied)
{
    constexpr std::uint32_t kMask = kCaptureCell - 1;
    return (static_cast<std::uint32_t>(sizeof(CaptureRecord)) + copied + kMask) & ~kMask;
}

} // namespace vma::stats
