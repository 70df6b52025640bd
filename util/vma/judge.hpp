// SPDX-License-Identifier: BSD-2-Clause
// What the facts about a process and its surroundings cost it of acceleration. Pure functions: who looks is elsewhere.
// What each costs was tried: doc/sandboxes.md, LIMITS of libvma(7).
#pragma once

#include "util/vma/finding.hpp"
#include "util/vma/machine.hpp"
#include "util/vma/place.hpp"

namespace vma::command {

Findings judge(const Place &place, const Machine &machine);

} // namespace vma::command
