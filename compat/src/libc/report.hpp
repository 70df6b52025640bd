// SPDX-License-Identifier: BSD-2-Clause
// A line in the log, for what lies below it.
#pragma once

namespace vma::libc {

// At error and at panic; the log is config/log.hpp, which has these.
void report_panic(const char *text);
void report_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

} // namespace vma::libc
