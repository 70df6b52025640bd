// SPDX-License-Identifier: BSD-2-Clause
// Whether a process that runs has the library, and if not, why.
#pragma once

#include "util/vma/finding.hpp"
#include "util/vma/place.hpp"
#include "util/vma/program.hpp"

namespace vma::command {

// What a process executes; its path is "" where it can't be told.
Program running_program(const Place &place);

Findings judge_loaded(const Place &place, const Program &program);

} // namespace vma::command
