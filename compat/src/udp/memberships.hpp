// SPDX-License-Identifier: BSD-2-Clause
// Which multicast groups this host has joined, by interface, as /proc/net/igmp and igmp6 list them: for senders who
// leave the kernel out while nobody here is in a group.
#pragma once

#include <netinet/in.h>

#include <cstdint>

namespace vma::sock::udp {

// True also where it can't be read.
bool is_joined(const in6_addr &group, std::uint32_t interface);

// Differs from what it was before when somebody may have joined since: some 50 ms later. Asked for before is_joined().
// From then on the helper thread looks.
std::uint32_t membership_generation();
bool membership_changed(std::uint32_t since); // hot path

// After setsockopt() with that option: VMA_WAIT_AFTER_JOIN_MSEC, if it was a join. The program's own signals don't end
// it. No lock is held.
void wait_after_join(int level, int name);

void look_at_memberships(); // helper thread
void memberships_after_fork_in_child();

} // namespace vma::sock::udp
