// SPDX-License-Identifier: BSD-2-Clause
// What one parameter says of another, as in VMA: limits that depend on each other, and what follows from polling.
#pragma once

#include "compat/src/config/params.hpp"

namespace vma::config {

// After all have been read. A value beyond a limit that another parameter sets becomes that limit.
void relate(Params &params);

// One line for each variable whose value relate() did not leave, and for what can't be had.
void warn_about_relations();

} // namespace vma::config
