// SPDX-License-Identifier: BSD-2-Clause
// The full-screen view. What its keys do stands at its foot.
#pragma once

#include <sys/types.h>

#include "util/vma_stats/options.hpp"

namespace vma_stats {

// `pid` is shown first; 0: whichever comes. Returns the exit status when the user leaves it, or SIGINT, SIGTERM or
// SIGHUP ends it; the terminal is as it was.
int run_live(const Options &options, pid_t pid);

} // namespace vma_stats
