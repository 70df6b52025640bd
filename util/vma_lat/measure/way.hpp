// SPDX-License-Identifier: BSD-2-Clause
// By which way the messages of a test went, as one of its sides knows it, and how that is said. Pure functions.
#pragma once

#include "util/vma_lat/measure/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vma::lat {

enum class Carrier : std::uint8_t { kUnknown, kKernel, kLocal, kRdma, kPort };

inline constexpr std::size_t kMostWays = 16;
inline constexpr std::size_t kMaxReason = 128; // characters

// Of some sockets, all of which went the same way.
struct Way {
    Carrier carrier = Carrier::kUnknown;
    std::uint32_t sockets = 1;
    bool other_user = false; // the other end is `user`'s
    bool introduced = false; // by vmad: the other end is in another network namespace
    bool guessed = false;    // `reason` is what can be told without the other side; not told to it
    std::uint32_t user = 0;
    std::string device;
    std::string reason;             // kUnknown, kKernel: why
    std::uint64_t bytes = 0;        // sent and received, warm-up included
    std::uint64_t kernel_bytes = 0; // of these: by the kernel
};

struct Side {
    bool library = false;      // it runs with libvma.so
    std::uint32_t user = 0;    // effective
    std::uint64_t network = 0; // the inode of its network namespace, 0: not known
    std::vector<Way> ways;     // of its sockets; none of endpoints
};

const char *name_of(Carrier carrier);

// Those that went alike are one, the most used come first, and there are no more than kMostWays.
std::vector<Way> merged(const std::vector<Way> &ways);

// Why sockets of `mine` stayed on the kernel, now that the other side has told what it is.
void explain(Side &mine, const Side &theirs, Kind kind);

// "shared memory with user 33", "kernel: libvma.so is not loaded".
std::string text_of(const Way &way);

} // namespace vma::lat
