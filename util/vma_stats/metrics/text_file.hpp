// SPDX-License-Identifier: BSD-2-Clause
// A file that readers see whole at all times, as node_exporter's textfile collector wants it: written under a name of
// its own beside, then renamed.
#pragma once

#include <string>

namespace vma_stats {

// False: errno; what was there before is there still. Nothing is written through links.
bool replace_file(const std::string &path, const std::string &text);

} // namespace vma_stats
