// SPDX-License-Identifier: BSD-2-Clause
// Frames for the tests of the wire layer, built by the code under test where that is simplest and by hand where it
// isn't.
#pragma once

#include "fabtests/unit.hpp"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include "prov/vma/src/inet/wire/bytes.hpp"
#include "prov/vma/src/inet/wire/checksum.hpp"
#include "prov/vma/src/inet/wire/ethernet.hpp"
#include "prov/vma/src/inet/wire/frame.hpp"

namespace frames {

using namespace vma::inet;
using Frame = std::vector<std::uint8_t>;

inline constexpr Mac kOurMac{{2, 0, 0, 0, 0, 1}};
inline constexpr Mac kPeerMac{{2, 0, 0, 0, 0, 2}};
inline const IpAddress kOurs4 = IpAddress::v4(0x0a000001);
inline const IpAddress kPeer4 = IpAddress::v4(0x0a000002);

inline IpAddress v6(std::uint16_t first, std::uint16_t last)
{
    IpAddress a;
    store16(&a.bytes[0], first);
    store16(&a.bytes[14], last);
    return a;
}
inline const IpAddress kOurs6 = v6(0xfd00, 1);
inline const IpAddress kPeer6 = v6(0xfd00, 2);

inline IpOut from_peer(bool ipv6, Protocol protocol)
{
    IpOut ip;
    ip.source = ipv6 ? kPeer6 : kPeer4;
    ip.target = ipv6 ? kOurs6 : kOurs4;
    ip.protocol = protocol;
    return ip;
}

inline Frame frame_of(const IpOut &ip, const Frame &payload, std::uint16_t vlan = 0)
{
    Frame frame(kMaxEthernetHeader + kIpv6Header);
    frame.resize(write_headers(frame.data(), L2{kOurMac, kPeerMac, vlan}, ip, payload.size()));
    frame.insert(frame.end(), payload.begin(), payload.end());
    return frame;
}

// The IPv4 header at `at` says what it says now, and its checksum is right.
inline void fix_ipv4(Frame &frame, std::size_t at = kEthernetHeader)
{
    const std::size_t header = std::size_t{4} * (frame[at] & 0xf);
    store16(&frame[at + 10], 0);
    store16(&frame[at + 10], finish(sum(&frame[at], header)));
}

inline Frame bytes_of(std::size_t length, unsigned start = 0)
{
    Frame bytes(length);
    for (std::size_t i = 0; i < length; ++i)
        bytes[i] = static_cast<std::uint8_t>(start + i * 7 + i / 256);
    return bytes;
}

inline void assert_bytes(std::span<const std::uint8_t> got, std::span<const std::uint8_t> wanted)
{
    assert_int_equal(got.size(), wanted.size());
    assert_memory_equal(got.data(), wanted.data(), wanted.size());
}

// Numbers that VMA_TEST_SEED repeats.
class Random
{
public:
    Random()
    {
        const char *const wanted = std::getenv("VMA_TEST_SEED");
        state_ = wanted ? std::strtoull(wanted, nullptr, 0) : static_cast<std::uint64_t>(getpid());
        std::printf("# VMA_TEST_SEED=%llu\n", static_cast<unsigned long long>(state_));
    }
    std::uint32_t operator()(std::uint32_t below)
    {
        state_ = state_ * 6364136223846793005 + 1442695040888963407;
        return static_cast<std::uint32_t>((state_ >> 24) % below);
    }

private:
    std::uint64_t state_;
};

} // namespace frames
