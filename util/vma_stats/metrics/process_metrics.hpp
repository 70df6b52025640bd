// SPDX-License-Identifier: BSD-2-Clause
// The metrics of one process, made of a copy of its file: how they are named, and which labels they have. The names are
// promises: man/vma_stats.8 lists them.
#pragma once

#include <string>

#include "util/vma_stats/metrics/exposition.hpp"
#include "util/vma_stats/snapshot.hpp"

namespace vma_stats {

// The labels that all samples of a process have.
Labels labels_of_process(pid_t pid, const std::string &program, const std::string &user);

// A number of samples that doesn't depend on how many sockets it has: sums by protocol, kind of wait and device.
void add_process(Exposition &out, const Labels &labels, const Snapshot &s);

// Those of its sockets for which `wanted` holds, `room` at most; takes them off `room`. Their addresses are those of
// ask_kernel(), their reasons of add_reasons().
struct Options;
void add_sockets(Exposition &out, const Labels &labels, const Snapshot &s, const Options &options, std::size_t &room);

} // namespace vma_stats
