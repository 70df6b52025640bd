// SPDX-License-Identifier: BSD-2-Clause
// The value of LD_PRELOAD, and where the loader would find a library by its name. Pure functions of texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vma::command {

inline constexpr std::string_view kLibraryName = "libvma.so";

// `library` before what was there; another libvma.so that was named is left out, as two of them in one process would
// take each other's sockets. `before` may be empty.
std::string preload_value(std::string_view library, std::string_view before);

// LD_PRELOAD is split at blanks and colons, so it can't name such a file.
bool can_be_preloaded(std::string_view library);

// Whether one of the entries is a libvma.so, or a libvma.so.N.
bool names_library(std::string_view value);

// All full paths that end in "/NAME" in the loader's cache (/etc/ld.so.cache), which has them as texts.
std::vector<std::string> paths_in_cache(std::string_view cache, std::string_view name);

} // namespace vma::command
