// SPDX-License-Identifier: BSD-2-Clause
// --prometheus and --listen: where the page of metrics goes.
#pragma once

#include "util/vma_stats/options.hpp"

namespace vma_stats {

// The exit status. What is wrong was said on stderr.
int run_metrics(const Options &options);

} // namespace vma_stats
