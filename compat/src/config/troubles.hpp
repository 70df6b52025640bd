// SPDX-License-Identifier: BSD-2-Clause
// What libvma warns of when it is loaded, in its words: people look for these.
#pragma once

#include "compat/src/config/params.hpp"

namespace vma::config {

// Behind the header: a log level that slows the program down, and a limit of locked memory that devices run into.
void warn_about_troubles(const Params &params);

} // namespace vma::config
