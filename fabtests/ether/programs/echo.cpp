// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/ether/programs/echo.hpp"

#include <algorithm>
#include <cstddef>

#include "inet/wire/bytes.hpp"

namespace fabtest {
namespace {

using vma::inet::load16;
using vma::inet::store16;

constexpr std::size_t kEthernet = 14;
constexpr std::size_t kUdp = 8;
constexpr std::uint8_t kUdpNumber = 17;

// RFC 1071: the ones' complement sum of 16-bit words.
std::uint32_t sum(std::span<const std::uint8_t> bytes, std::uint32_t before)
{
    std::size_t i = 0;
    for (; i + 1 < bytes.size(); i += 2)
        before += load16(&bytes[i]);
    if (i < bytes.size())
        before += static_cast<std::uint32_t>(bytes[i]) << 8;
    return before;
}

std::uint16_t fold(std::uint32_t total)
{
    while (total >> 16 != 0)
        total = (total & 0xffff) + (total >> 16);
    return static_cast<std::uint16_t>(~total);
}

void swap(std::uint8_t *a, std::uint8_t *b, std::size_t size)
{
    std::swap_ranges(a, a + size, b);
}

} // namespace

bool turn_round(std::span<std::uint8_t> frame)
{
    if (frame.size() < kEthernet + 20 + kUdp)
        return false;
    const unsigned type = load16(&frame[12]);
    const bool is_v4 = type == 0x0800 && frame[kEthernet] == 0x45 && frame[kEthernet + 9] == kUdpNumber;
    const bool is_v6 = type == 0x86dd && frame.size() >= kEthernet + 40 + kUdp && frame[kEthernet + 6] == kUdpNumber;
    if (!is_v4 && !is_v6)
        return false;
    const std::size_t header = is_v4 ? 20 : 40;
    const std::size_t addresses = is_v4 ? 12 : 8;
    const std::size_t width = is_v4 ? 4 : 16;
    std::uint8_t *const ip = &frame[kEthernet];
    std::uint8_t *const udp = ip + header;
    const std::size_t length = load16(udp + 4);
    if (length < kUdp || kEthernet + header + length > frame.size())
        return false;
    swap(&frame[0], &frame[6], 6);
    swap(ip + addresses, ip + addresses + width, width);
    swap(udp, udp + 2, 2);
    store16(udp + 6, 0);
    // The pseudo-header of RFC 768 and RFC 8200, 8.1.
    std::uint32_t total = sum({ip + addresses, 2 * width}, static_cast<std::uint32_t>(length) + kUdpNumber);
    total = sum({udp, length}, total);
    const std::uint16_t checksum = fold(total);
    store16(udp + 6, checksum != 0 ? checksum : 0xffff);
    return true;
}

} // namespace fabtest
