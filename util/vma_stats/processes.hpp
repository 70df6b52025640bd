// SPDX-License-Identifier: BSD-2-Clause
// Which processes have a file of counters in a folder, whether they live, and what the dead left.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "util/vma_stats/snapshot.hpp"

namespace vma_stats {

// Does the process that wrote it run still? Another one may have its id by now. A process of another pid namespace is
// taken to live.
bool lives(const Snapshot &s);

struct Found {
    pid_t pid;
    std::string path;
};
// By their ids. What isn't named vmastat.<pid> is not ours.
std::vector<Found> list_files(const std::string &folder);

// Removes files of ours whose process is dead; what can't be removed, or isn't a file of ours, stays,
// and so do `pid` and programs of this name.
void clean(const std::string &folder, pid_t pid, const std::string &name);

// The base name of /proc/PID/exe; "" if that can't be read.
std::string executable_of(pid_t pid);

} // namespace vma_stats
