// SPDX-License-Identifier: BSD-2-Clause
// Devices that could not be opened, and when that is tried again: to wait for a process that has an Ethernet port and
// doesn't answer takes a second, and each try logs why.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vma::sock {

// Not thread-safe. Times are in ns of one clock.
template <std::size_t kNames, std::size_t kNameSize> class Refusals
{
public:
    static constexpr std::int64_t kFirst = 1'000'000'000;
    static constexpr std::int64_t kLongest = 60 * kFirst;

    bool is_too_early(const char *name, std::int64_t now) const
    {
        const auto found = std::ranges::find_if(all_, [=](const Refusal &r) { return is(r, name); });
        return found != all_.end() && now < found->again_at;
    }
    // Each time in turn it is left alone for twice as long. The one that was tried longest ago is forgotten for it.
    void note(const char *name, std::int64_t now)
    {
        auto place = std::ranges::find_if(all_, [=](const Refusal &r) { return is(r, name); });
        if (place == all_.end()) {
            place = std::ranges::min_element(all_, {}, &Refusal::again_at);
            *place = Refusal{};
            std::copy_n(name, std::min(std::strlen(name), kNameSize - 1), place->name);
        }
        place->pause = place->pause == 0 ? kFirst : std::min(2 * place->pause, kLongest);
        place->again_at = now + place->pause;
    }
    void forget(const char *name)
    {
        for (Refusal &r : all_)
            if (is(r, name))
                r = Refusal{};
    }

private:
    struct Refusal {
        char name[kNameSize] = {};
        std::int64_t again_at = 0;
        std::int64_t pause = 0;
    };

    static bool is(const Refusal &r, const char *name) { return std::strncmp(r.name, name, kNameSize - 1) == 0; }

    std::array<Refusal, kNames> all_ = {};
};

} // namespace vma::sock
