// SPDX-License-Identifier: BSD-2-Clause
// Doorbells that have come over a link: their descriptors come with the first offer that names them, and later offers
// say the number alone. Both ends keep a few, each in the place that its number says, so they agree without a word. A
// guest has one, and costs us no more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "local/doorbell.hpp"

namespace vma::local {

inline constexpr std::size_t kLinkBells = 8; // queues of a process, as a rule one or a few
constexpr std::size_t place_of_bell(std::uint64_t number, bool guest)
{
    return guest ? 0 : number % kLinkBells;
}

// What we have sent.
class SentBells
{
public:
    explicit SentBells(bool guest) noexcept : guest_(guest) {}

    // Whether the peer has it. If not, it is sent now.
    bool has(std::uint64_t number) noexcept
    {
        std::uint64_t &place = sent_[place_of_bell(number, guest_)];
        if (place == number)
            return true;
        place = number;
        return false;
    }
    void forget() noexcept { sent_ = {}; } // something was lost: all are sent again

private:
    const bool guest_;
    std::array<std::uint64_t, kLinkBells> sent_{}; // 0: none, as no doorbell is
};

// What has come. Numbers are the peer's word.
class KnownBells
{
public:
    explicit KnownBells(bool guest) noexcept : guest_(guest) {}

    // `bell`: nullptr where it was none. It takes the place of an older one, which lives on with its endpoints.
    void keep(std::uint64_t number, std::shared_ptr<PeerDoorbell> bell) noexcept
    {
        known_[place_of_bell(number, guest_)] = {number, std::move(bell)};
    }
    void lose(std::uint64_t number) noexcept { known_[place_of_bell(number, guest_)] = {}; }
    // False: it never came, or was lost.
    bool find(std::uint64_t number, std::shared_ptr<PeerDoorbell> &out) const noexcept
    {
        const Known &known = known_[place_of_bell(number, guest_)];
        if (number == 0 || known.number != number)
            return false;
        out = known.bell;
        return true;
    }

private:
    struct Known {
        std::uint64_t number = 0;
        std::shared_ptr<PeerDoorbell> bell;
    };
    const bool guest_;
    std::array<Known, kLinkBells> known_;
};

} // namespace vma::local
