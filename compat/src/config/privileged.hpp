// SPDX-License-Identifier: BSD-2-Clause
// Programs that have more rights than who starts them: set-user-ID, set-group-ID, capabilities of the file (AT_SECURE).
// Their environment is that of a stranger, so it is not read, and they share no memory with the stranger's processes,
// unless root's libvma.conf, where this library was installed to have it, says so:
//     privileged FILE [NAME=VALUE...]
// with the parameters that it then has.
#pragma once

#include <string_view>

#include "config.h"

#include "compat/src/config/state.hpp"

namespace vma::config {

inline constexpr const char *kPrivilegedFile = LIBVMA_CONF;
inline constexpr std::string_view kPrivilegedWord = "privileged";

bool is_privileged();    // AT_SECURE
void read_permission();  // once, before the first parameter is read. Without effect where it is not privileged
inline bool is_refused() // it is, and no line allows it to be accelerated
{
    return g_config.refused;
}
const char *granted(const char *name); // the value that the line gives a parameter; nullptr: none

// Of a text: whether a line has `file` exactly. What follows on that line is written to `out`, each NAME=VALUE with its
// zero, and a zero behind the last one; what there is no room for is left out.
bool find_permission(std::string_view text, std::string_view file, char *out, std::size_t size);

} // namespace vma::config
