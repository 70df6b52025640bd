// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/spare_room.hpp"

#include <atomic>
#include <bit>
#include <cstdint>

#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::sock {

namespace {

constexpr unsigned kRooms = 8;
constexpr std::uint32_t kAll = (1U << kRooms) - 1;
constexpr std::size_t kRoom = 16384;

// In the child of a fork those stay taken that other threads had: the call that a handler has forked in goes on there.
struct SpareRooms {
    std::atomic<std::uint32_t> taken; // a bit each
    char bytes[kRooms][kRoom];
};
[[VMA_TABLE]] constinit SpareRooms g_spare_rooms = {};

} // namespace

void SpareRoom::take()
{
    if (place_ >= 0)
        return;
    const libc::Stretch stretch; // a handler that jumps finds it taken and noted, or not taken
    std::uint32_t taken = g_spare_rooms.taken.load(std::memory_order_relaxed);
    std::uint32_t mine;
    do {
        if (taken == kAll)
            return;
        mine = ~taken & (taken + 1);
    } while (!g_spare_rooms.taken.compare_exchange_weak(taken, taken | mine, std::memory_order_acquire,
                                                        std::memory_order_relaxed));
    place_ = std::countr_zero(mine);
    bytes_ = g_spare_rooms.bytes[place_];
    size_ = kRoom;
}

void SpareRoom::give_back()
{
    if (place_ < 0)
        return;
    const libc::Stretch stretch;
    g_spare_rooms.taken.fetch_and(~(1U << place_), std::memory_order_release);
    place_ = -1;
}

} // namespace vma::sock
