// SPDX-License-Identifier: BSD-2-Clause
// What looking for the other end keeps. Private to compat/src/rendezvous. All zero at first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "compat/src/base/lock.hpp"
#include "compat/src/rendezvous/generation.hpp"

namespace vma::sock {

inline constexpr std::size_t kListRoom = 32768;

struct Rendezvous {
    Generations none; // offer.cpp: until there is a directory; atomic
    // diag.cpp; own lock.
    Mutex netlink_lock;
    std::optional<int> netlink;
    std::uint64_t netlink_network = 0; // the namespace that it asks, which stays
    // broker.cpp; offload lock.
    std::optional<int> broker;
    std::int64_t look_for_broker_ns = 0; // not before
    char list[kListRoom] = {};           // of the kernel's answer
};
extern constinit Rendezvous g_rendezvous;

} // namespace vma::sock
