// SPDX-License-Identifier: BSD-2-Clause
// What becomes of a tool once its command line was read.
#pragma once

namespace vma::tool {

enum class Parsed {
    kRun,
    kDone,  // help or the version was asked for, and printed
    kWrong, // said on standard error what is wrong
};

// For main(): the exit status of `run`, which does what was asked, or that of a tool that has nothing to do: 0 where
// all is done, `wrong` where the command line was.
template <typename Run> int run_if_asked(Parsed parsed, const Run &run, int wrong = 1)
{
    if (parsed == Parsed::kRun)
        return run();
    return parsed == Parsed::kDone ? 0 : wrong;
}

} // namespace vma::tool
