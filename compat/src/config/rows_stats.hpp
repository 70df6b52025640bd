// SPDX-License-Identifier: BSD-2-Clause
// Rows of the table: counters, for vma_stats and at the end of a socket.
#pragma once

#include "compat/src/config/table.hpp"

namespace vma::config {

inline constexpr Parameter kStatsRows[] = {
    {.name = "VMA_STATS_FILE",
     .label = "Stats File",
     .field = &Params::stats_file,
     .text = "The file that each socket's counters are appended to when it is closed, if it has sent or received. One "
             "%d in it stands for the process's id."},
    {.name = "VMA_STATS_SHMEM_DIR",
     .label = "Stats shared memory directory",
     .field = &Params::stats_shmem_dir,
     .fallback_text = "/tmp/",
     .text = "The folder of the file vmastat.PID that vma_stats reads. One %d in it stands for the "
             "process's id. Set to the empty text: no file."},
    {.name = "VMA_STATS_FD_NUM",
     .label = "Stats FD Num (max)",
     .field = &Params::stats_fd_num,
     .fallback = 100,
     .max = 1024,
     .overrides = {{{Spec::k7750, 1024}}},
     .text = "How many sockets of a process vma_stats sees; those beyond are counted for VMA_STATS_FILE alone."},
    {.name = "VMA_CPU_USAGE_STATS",
     .label = "Polling CPU idle usage",
     .field = &Params::cpu_usage_stats,
     .text = "Whether select(), poll() and epoll_wait() measure how much of the time they poll; vma_stats shows it."},
};

} // namespace vma::config
