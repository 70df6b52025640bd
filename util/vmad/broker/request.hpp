// SPDX-License-Identifier: BSD-2-Clause
// Requests to the broker as they are read, and answers as they are written: bytes and counts alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <sys/types.h>

#include "compat/src/rendezvous/broker_messages.hpp"

namespace vma::guard {

enum class Asked : std::uint8_t {
    kAsk,
    kCancel,
    kOtherVersion, // to be answered, and no more is known of it than its id
    kGarbage,      // whoever sends it is not heard any further
};

// `sent`: how long the packet was, perhaps more than `bytes`. `descriptors`: how many came with it, however many more
// the kernel has thrown away.
Asked parse_request(std::span<const std::byte> bytes, std::size_t sent, unsigned descriptors, std::uint32_t &id);

// Who has connected to the broker, by the kernel's words.
struct Person {
    uid_t user = 0;
    gid_t group = 0;
    pid_t process = 0;
    std::string cgroup; // "/..." in the tree of version 2, empty: unknown
};

// The result only, or whom the other end belongs to.
broker::Answer refusal(std::uint32_t id, broker::Result result);
broker::Answer introduction(std::uint32_t id, broker::Role role, const Person &other, std::uint64_t pair);

} // namespace vma::guard
