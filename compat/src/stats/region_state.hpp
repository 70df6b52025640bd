// SPDX-License-Identifier: BSD-2-Clause
// What region.cpp and file.cpp share. Private to compat/src/stats.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

#include <atomic>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/stats/region.hpp"

namespace vma::stats {

inline Slot *slots_of(Header &header)
{
    return reinterpret_cast<Slot *>(&header + 1);
}

inline std::uint64_t read_clock(clockid_t clock)
{
    timespec now = {};
    ::clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000 + static_cast<std::uint64_t>(now.tv_nsec);
}

// A file that becomes longer than RLIMIT_FSIZE raises SIGXFSZ, which ends the program.
inline bool exceeds_file_limit(std::size_t size)
{
    rlimit limit = {};
    return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur;
}

const char *wanted_folder(); // of the file; nullptr: none is wanted

} // namespace vma::stats
