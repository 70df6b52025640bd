// SPDX-License-Identifier: BSD-2-Clause
// The messages that a test sends: header, sequence number, pattern; and the reckoning of which of them arrived. A
// header takes kMinSize bytes: session (2), flags (1), 0, sequence number (8), in the byte order of the machine that
// made it: the other side sends it back as it is or reads the session, by which it sees a machine of the other order.
#pragma once

#include "util/vma_lat/measure/protocol.hpp"

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace vma::lat {

inline constexpr std::uint8_t kWarmUp = 1;      // counts nowhere
inline constexpr std::uint8_t kReplyWanted = 2; // the server sends it back,
inline constexpr std::uint8_t kReply = 4;       // with this

struct MessageHeader {
    std::uint16_t session = 0;
    std::uint8_t flags = 0;
    std::uint8_t zero = 0;
    std::uint32_t low = 0; // of the sequence number
    std::uint32_t high = 0;

    std::uint64_t sequence() const { return std::uint64_t{high} << 32 | low; }
};
static_assert(sizeof(MessageHeader) == kMinSize);

inline MessageHeader read_header(const std::byte *message)
{
    MessageHeader header;
    std::memcpy(&header, message, sizeof header);
    return header;
}

void write_header(std::byte *message, std::uint16_t session, std::uint8_t flags, std::uint64_t sequence);

// What follows the header, of a message with that number.
void write_pattern(std::span<std::byte> message, std::uint64_t sequence);
bool pattern_holds(std::span<const std::byte> message, std::uint64_t sequence);

// Which numbers of one sender have come. Remembers the last kWindow of them one by one, so that a message that came
// twice is told from one that came late; what is older than that counts as late.
class Sequence
{
public:
    static constexpr std::uint64_t kWindow = 8192;
    enum class Seen { kNext, kReordered, kDuplicate };

    Seen see(std::uint64_t number);

private:
    void forget_up_to(std::uint64_t number);

    std::uint64_t next_ = 0;
    std::bitset<kWindow> seen_; // of the kWindow numbers before next_
};

} // namespace vma::lat
