// SPDX-License-Identifier: BSD-2-Clause
// Numbers and runs of bytes as they go over the control connections: big endian, a run behind its length. What comes
// from the wire is read here and nowhere else, and never beyond its end.
#pragma once

#include "util/vma_lat/measure/protocol.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace vma::lat {

// What came is no message of vma_lat.
Error malformed(const char *what);

class Writer
{
public:
    template <std::unsigned_integral T> void number(T value)
    {
        for (std::size_t i = sizeof value; i-- > 0;)
            bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
    }
    void run(std::span<const std::byte> bytes) // at most 65535
    {
        number(static_cast<std::uint16_t>(bytes.size()));
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    void text(const std::string &text) { run(std::as_bytes(std::span(text))); }
    Bytes take() { return std::move(bytes_); }

private:
    Bytes bytes_;
};

// Reads nothing beyond the end: what is missing reads as 0, and complete() tells it.
class Reader
{
public:
    explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
    template <std::unsigned_integral T> void number(T &value)
    {
        value = 0;
        for (const std::byte byte : take(sizeof value))
            value = static_cast<T>(static_cast<std::uint64_t>(value) << 8 | std::to_integer<std::uint64_t>(byte));
    }
    std::span<const std::byte> run(std::size_t most)
    {
        std::uint16_t length = 0;
        number(length);
        if (length > most)
            broken_ = true;
        return take(length);
    }
    std::string text(std::size_t most)
    {
        std::string text;
        for (const std::byte byte : run(most)) {
            const char c = std::to_integer<char>(byte);
            text.push_back(c >= ' ' && c <= '~' ? c : '?'); // it goes to somebody's terminal
        }
        return text;
    }
    bool complete() const { return !broken_ && rest_.empty(); }

private:
    std::span<const std::byte> take(std::size_t length)
    {
        if (broken_ || length > rest_.size()) {
            broken_ = true;
            return {};
        }
        const auto taken = rest_.first(length);
        rest_ = rest_.subspan(length);
        return taken;
    }

    std::span<const std::byte> rest_;
    bool broken_ = false;
};

} // namespace vma::lat
