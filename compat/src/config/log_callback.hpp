// SPDX-License-Identifier: BSD-2-Clause
// VMA_LOG_CB_FUNC_PTR: a function of the program's that gets the log's lines, as sockperf has one.
#pragma once

namespace vma::config {

// `level` is a Level; `line` is whole, with prefix and end of line, and only there until the function returns.
using LogCallback = void (*)(int level, const char *line);

// What the variable points to, in the form of printf's %p; nullptr if it is not set or points to no function of this
// process. It is taken out of the environment: a program that this one starts has another memory.
LogCallback take_log_callback();

} // namespace vma::config
