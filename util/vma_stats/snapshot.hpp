// SPDX-License-Identifier: BSD-2-Clause
// A copy of a process's file of counters. The file is another's: what is in it is checked here, once, and nothing that
// comes from here can lead a reader astray.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "compat/src/stats/layout.hpp"

namespace vma_stats {

struct Snapshot {
    vma::stats::Header header;           // texts have an end, counts are in their bounds
    std::vector<vma::stats::Slot> slots; // by place; facts.fd < 0: free
    double seconds = 0;                  // CLOCK_MONOTONIC when it was taken
    uid_t owner = 0;                     // of the file
    bool whole = false;                  // nothing is in it twice or missing as sockets were closed while it was read
};

// False: `error` says what is wrong with it, as part of a sentence.
bool read_snapshot(const std::string &path, Snapshot &out, std::string &error);

// The same of a process that was named. It may be about to write the file: the contents come after the name, the magic
// number last (compat/src/stats/file.cpp). Waits for that, unless the file is older than some seconds.
bool read_when_written(const std::string &path, Snapshot &out, std::string &error);

// Why sockets are the kernel's that have not been given to it for good. After ask_kernel(), which knows who listens.
void add_reasons(Snapshot &s);

std::string path_of(const std::string &folder, pid_t pid);
std::string program_of(const Snapshot &s); // printable

// ---- requests: the file is written to -------------------------------------------------------------------------------
// False: errno.

bool zero_counters(const std::string &path, const Snapshot &s);
// INT_MIN leaves a setting as it is; `dump_fd` 0 means all.
struct Wishes {
    int log_level;
    int log_details;
    int dump_fd;
    int dump_level;
};
bool ask(const std::string &path, const Wishes &wishes);

} // namespace vma_stats
