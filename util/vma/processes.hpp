// SPDX-License-Identifier: BSD-2-Clause
// The processes that run with libvma.so, out of what they count (vma_stats), and which of their sockets are two ends of
// one connection.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "util/vma_stats/snapshot.hpp"

namespace vma::command {

struct Accelerated {
    pid_t pid = 0; // in our namespace of them
    std::string program;
    vma_stats::Snapshot snapshot; // completed by the kernel; reasons are added
};

struct Processes {
    std::vector<Accelerated> all; // that live, by their ids
    unsigned hidden = 0;          // whose files only their users, or root, may read
};

// VMA_STATS_SHMEM_DIR, or /tmp.
std::string counters_folder();

// Also those that see another folder under this name (containers, units with PrivateTmp), as far as we may look.
Processes find_processes(const std::string &folder);
// One; false: it has no file of counters there, or it can't be read.
bool find_process(const std::string &folder, pid_t pid, Accelerated &out);

struct End {
    const Accelerated *process = nullptr; // nullptr: none
    const vma::stats::Facts *socket = nullptr;
};

// Finds the other ends of connections. What it was made of must outlive it.
class Ends
{
public:
    explicit Ends(const Processes &processes);
    // Of a connected socket of the process: where local and peer address are the other way round.
    End other_end(const Accelerated &process, const vma::stats::Facts &socket) const;

private:
    std::unordered_multimap<std::string, End> by_addresses_;
};

} // namespace vma::command
