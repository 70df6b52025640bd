// SPDX-License-Identifier: BSD-2-Clause
// What libvma.so, if this process runs with it, says of sockets of this process: in the file of counters that vma_stats
// reads (doc/monitoring.md).
#pragma once

#include "util/vma_lat/measure/way.hpp"

#include <string>
#include <vector>

namespace vma::lat {

// This side, with the ways of its open sockets.
Side look_at(const std::vector<int> &sockets);

// What that file, `path`, says of them. Without a file there is no path.
std::vector<Way> read_ways(const std::string &path, const std::vector<int> &sockets);

} // namespace vma::lat
