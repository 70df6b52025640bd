#include "util/vma_stats/live.hpp"
#include <stdio.h>
namespace vma_stats {
int run_live(const Options &, pid_t)
{
    fprintf(stderr, "vmastat: built without ncurses: there is no live view\n");
    return 1;
}
} // namespace vma_stats
