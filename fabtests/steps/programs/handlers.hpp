// SPDX-License-Identifier: BSD-2-Clause
// What comes to the victim's thread in its stretch: a signal, whose handler does what the board says, or its end.
#pragma once

#include <setjmp.h>

#include "fabtests/steps/programs/side.hpp"

namespace step {

extern sigjmp_buf g_way_out; // of a handler that jumps

void install(Side &side); // in the victim, where the board says what

[[noreturn]] void go_on_behind_jump();

} // namespace step
