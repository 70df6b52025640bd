// SPDX-License-Identifier: BSD-2-Clause
// In place of live.cpp where configure found no ncurses.
#include <stdio.h>

#include "util/vma_stats/live.hpp"

namespace vma_stats {

int run_live(const Options &, pid_t)
{
    fprintf(stderr, "vmastat: built without ncurses: there is no live view\n");
    return 1;
}

} // namespace vma_stats
