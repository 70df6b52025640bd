// SPDX-License-Identifier: BSD-2-Clause
// Work of this library's on a stack of its own (base/own_stack.hpp), and the program's log callback back on the
// program's meanwhile. With a sanitizer, and on processors that are not named in stacks.cpp, nothing is switched.
#pragma once

#include <cstddef>

namespace vma::config {

extern const bool g_switches_stacks;

// work(argument) on `stack`; one thread at a time, and one such stack in a process.
void call_on_own_stack(void (*work)(void *), void *argument, char *stack, std::size_t size);

// On the program's stack, behind what is on it, whichever this thread is on.
void call_on_programs_stack(void (*work)(void *), void *argument);

} // namespace vma::config
