// SPDX-License-Identifier: BSD-2-Clause
// What a server and a client do from start to end: the control connection, one test after another, the reports.
#pragma once

#include "util/vma_lat/options.hpp"

namespace vma::lat {

// Return the exit status; what went wrong is on stderr by then.
int be_server(const Options &options);
int be_client(const Options &options);

int complain(const Error &error); // one line on stderr; returns the status

} // namespace vma::lat
