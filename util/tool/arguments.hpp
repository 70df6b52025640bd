// SPDX-License-Identifier: BSD-2-Clause
// What tools read from their command lines alike.
#pragma once

#include <errno.h>
#include <stdlib.h>

#include <string>

namespace vma::tool {

// A decimal number from `least` to `most`, and nothing behind it. False: it is none, and `out` is of no meaning.
inline bool read_number(const char *text, long least, long most, long &out)
{
    char *end = nullptr;
    errno = 0;
    out = strtol(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && out >= least && out <= most;
}

// A folder's path without the slashes at its end.
inline std::string read_folder(const char *text)
{
    std::string folder = text;
    while (folder.size() > 1 && folder.back() == '/')
        folder.pop_back();
    return folder;
}

} // namespace vma::tool
