// SPDX-License-Identifier: BSD-2-Clause
// The rules of libvma.conf that hold for this process, and what the program adds to them while it runs. Any thread may
// ask and add at any time: nothing is ever taken away, and no lock is needed.
#pragma once

#include <atomic>

#include "compat/src/rules/rule.hpp"

namespace vma::rules {

inline constexpr const char *kReason = "a rule of libvma.conf says os"; // of sockets that stay on the kernel

// Reads VMA_CONFIG_FILE, once; what is wrong is logged with file, line and column. By the library's constructor, or by
// the first socket() if that comes from a constructor that runs before.
void load();

// A line of libvma.conf, put before all others of its role. 0, or -1 with EINVAL and an error in the log.
int add(const char *line);

struct Node;

// Any thread reads and adds.
struct Rules {
    std::atomic<bool> any{false};
    std::atomic_flag loaded;
    std::atomic<const Node *> first[kRoles] = {}; // that match is first; nodes live for ever
};
extern Rules g_rules;

inline bool exist()
{
    return g_rules.any.load(std::memory_order_acquire);
}

// Whether the first rule that matches says that the kernel has it; no rule: it is ours. Addresses as in rule.hpp.
bool says_kernel(Role role, const sockaddr_in6 &first, const sockaddr_in6 *second = nullptr);

} // namespace vma::rules
