// SPDX-License-Identifier: BSD-2-Clause
// Names of parameters that other releases of VMA had, from 2008 on, and what to say of a VMA_* variable that is none.
#pragma once

#include <cstddef>

#include "compat/src/config/table.hpp"

namespace vma::config {

// A variable of the environment, unless it is empty; nullptr in a set-user-id program, whose caller must not choose for
// it.
const char *variable(const char *name);
const char *raw_variable(const char *name); // the same, where an empty one means something

// Whether one of a name VMA_* is in the environment, whatever it says.
bool any_variable();

inline constexpr std::size_t kAliasText = 32;

// What an older name says of this parameter; nullptr if none does, or the parameter's own name is there. `text` may be
// what holds it.
const char *older_value(const Row &row, char (&text)[kAliasText]);

// One line for each older name that is set, and for each VMA_* variable that nobody knows, with the known name that is
// most like it.
void warn_about_names();

// The name that `name` may be a slip of, nullptr if it is like none: at most a fifth of its letters wrong, missing, too
// many or swapped with a neighbour. For tests too.
const char *nearest_name(const char *name);

} // namespace vma::config
