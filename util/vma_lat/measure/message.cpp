// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/measure/message.hpp"

namespace vma::lat {

namespace {

std::byte pattern_byte(std::size_t place, std::uint64_t sequence)
{
    return static_cast<std::byte>((sequence * 31 + place) & 0xff);
}

} // namespace

void write_header(std::byte *message, std::uint16_t session, std::uint8_t flags, std::uint64_t sequence)
{
    const MessageHeader header{session, flags, 0, static_cast<std::uint32_t>(sequence),
                               static_cast<std::uint32_t>(sequence >> 32)};
    std::memcpy(message, &header, sizeof header);
}

void write_pattern(std::span<std::byte> message, std::uint64_t sequence)
{
    for (std::size_t i = sizeof(MessageHeader); i < message.size(); ++i)
        message[i] = pattern_byte(i, sequence);
}

bool pattern_holds(std::span<const std::byte> message, std::uint64_t sequence)
{
    for (std::size_t i = sizeof(MessageHeader); i < message.size(); ++i) {
        if (message[i] != pattern_byte(i, sequence))
            return false;
    }
    return true;
}

void Sequence::forget_up_to(std::uint64_t number)
{
    if (number - next_ >= kWindow)
        seen_.reset();
    else
        for (std::uint64_t i = next_; i != number; ++i)
            seen_.reset(i % kWindow);
}

Sequence::Seen Sequence::see(std::uint64_t number)
{
    if (number >= next_) {
        forget_up_to(number);
        seen_.set(number % kWindow);
        next_ = number + 1;
        return Seen::kNext;
    }
    if (next_ - number > kWindow)
        return Seen::kReordered;
    if (seen_.test(number % kWindow))
        return Seen::kDuplicate;
    seen_.set(number % kWindow);
    return Seen::kReordered;
}

} // namespace vma::lat
