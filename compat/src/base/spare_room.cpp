// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/spare_room.hpp"

#include <atomic>

#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/libc/this_thread.hpp"

namespace vma::sock {

namespace {

constexpr int kRooms = 8;

struct SpareRooms {
    std::atomic<const libc::ThisThread *> owners[kRooms]; // nullptr: it is free
    char bytes[kRooms][SharedRoom::kSize];
};
[[VMA_TABLE]] constinit SpareRooms g_spare_rooms = {};

} // namespace

void SharedRoom::take()
{
    if (place_ >= 0)
        return;
    const libc::Stretch stretch; // a handler that jumps finds it taken and noted, or not taken
    for (int i = 0; i < kRooms; ++i) {
        const libc::ThisThread *owner = g_spare_rooms.owners[i].load(std::memory_order_relaxed);
        if (owner != nullptr || !g_spare_rooms.owners[i].compare_exchange_strong(
                                    owner, &libc::t_libc, std::memory_order_acquire, std::memory_order_relaxed))
            continue;
        place_ = i;
        return;
    }
}

void SharedRoom::give_back()
{
    if (place_ < 0)
        return;
    const libc::Stretch stretch;
    g_spare_rooms.owners[place_].store(nullptr, std::memory_order_release);
    place_ = -1;
}

char *SharedRoom::bytes() const
{
    return place_ >= 0 ? g_spare_rooms.bytes[place_] : nullptr;
}

// The call that a handler has forked in goes on in the child.
void SharedRoom::after_fork_in_child()
{
    for (std::atomic<const libc::ThisThread *> &owner : g_spare_rooms.owners)
        if (owner.load(std::memory_order_relaxed) != &libc::t_libc)
            owner.store(nullptr, std::memory_order_relaxed);
}

} // namespace vma::sock
