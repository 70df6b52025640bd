// SPDX-License-Identifier: BSD-2-Clause
// The commands of `vma`, a function each. argv[0] is the command's name; they return the exit status.
#pragma once

namespace vma::command {

inline constexpr int kFine = 0;
inline constexpr int kNo = 1;    // what was asked is not so, or something is wrong with what was looked at
inline constexpr int kUsage = 2; // nothing was done
// As shells and env(1) have it:
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

int run(int argc, char **argv);
int check(int argc, char **argv);
int list(int argc, char **argv);
int explain(int argc, char **argv);
int demo(int argc, char **argv);
int enable(int argc, char **argv);
int disable(int argc, char **argv);
int version(int argc, char **argv);

// The page of a command, "" for the overview; nullptr: there is no such command.
const char *help_of(const char *command);

// Says on stderr where a command's page is, and returns kUsage.
int wrong_usage(const char *command);

} // namespace vma::command
