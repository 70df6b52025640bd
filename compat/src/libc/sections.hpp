// SPDX-License-Identifier: BSD-2-Clause
// Where code and tables stand in the file. Each page that a program touches costs it a fault, and most programs that
// the machine's /etc/ld.so.preload brings the library into have no socket: they touch what stands together here, and
// little else (doc/startup.md).
#pragma once

// Of a function that runs when the library is loaded or the process ends, with or without a socket.
#define VMA_AT_STARTUP gnu::section(".text.startup")

// Of a small variable that such a function touches, or that the loader has to write to: they end the initialised data,
// on the page that the loader writes to anyway, where the zeros begin.
#define VMA_STARTUP_DATA gnu::section(".data1")

// Of a variable of a page or more that is zero at first: behind all small ones, which so share few pages.
#define VMA_TABLE gnu::section(".bss.tables")

namespace vma::libc {

// When the library is loaded: Debian's kernels else give a table two MiB where it needs a page (transparent huge
// pages).
void keep_pages_small();

} // namespace vma::libc
