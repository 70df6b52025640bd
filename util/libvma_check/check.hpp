// SPDX-License-Identifier: BSD-2-Clause
// What libvma-check does, for `vma check` too. man/libvma-check.1 is the specification.
#pragma once

namespace libvma_check {

// The command line of libvma-check; argv[0] is passed over. `tool` begins what is said on stderr. Returns the exit
// status: 0 the file has no errors, 1 it has or can't be read, 2 wrong usage. For one call: it reads with getopt().
int check(const char *tool, int argc, char **argv);

} // namespace libvma_check
