// SPDX-License-Identifier: BSD-2-Clause
// Sets of processors as VMA_INTERNAL_THREAD_AFFINITY writes them, in the two forms of taskset(1): a hexadecimal mask
// with 0x before it, or a list.
#pragma once

#include <array>
#include <climits>
#include <cstddef>

namespace vma::config {

inline constexpr std::size_t kMaxCpus = 8192; // the most that Linux can be built for

// In the form of sched_setaffinity(2), which cpu_set_t is too short for.
struct CpuMask {
    static constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;
    std::array<unsigned long, kMaxCpus / kBits> words{};

    void set(std::size_t cpu) { words[cpu / kBits] |= 1UL << (cpu % kBits); }
    bool has(std::size_t cpu) const { return ((words[cpu / kBits] >> (cpu % kBits)) & 1U) != 0; }
    bool operator==(const CpuMask &) const = default;
};

// "0x3", "0,4-7", "0-10:2" (every second one); blanks may stand around the whole. False if it is neither, names a
// processor from 8192 on, or none at all; `mask` then means nothing.
bool parse_cpus(const char *text, CpuMask &mask);

} // namespace vma::config
