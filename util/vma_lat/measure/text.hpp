// SPDX-License-Identifier: BSD-2-Clause
// Errors as values, and text made by printf's rules. An error says what was wrong, what was expected and what happens
// now, and carries the exit status that the manual page gives to its kind.
#pragma once

#include <optional>
#include <string>

namespace vma::lat {

enum Exit : int {
    kExitFine = 0,
    kExitFailed = 1,      // a call of the system's or of libfabric's failed
    kExitUsage = 2,       // the command line
    kExitServer = 3,      // the server can't be reached, refuses, or went away
    kExitData = 4,        // messages arrived damaged, or a transport that promises to lose none lost some
    kExitInterrupted = 5, // a signal ended the run; what was measured until then was reported
};

struct Error {
    int status;
    std::string text;
};
using Failure = std::optional<Error>; // nothing: all went well

[[gnu::format(printf, 1, 2)]] std::string format(const char *form, ...);
[[gnu::format(printf, 2, 3)]] Error error(int status, const char *form, ...);

// "WHAT: text of errno"; the run ends.
Error system_error(const std::string &what);

} // namespace vma::lat
