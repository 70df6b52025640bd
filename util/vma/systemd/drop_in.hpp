// SPDX-License-Identifier: BSD-2-Clause
// The text of the drop-in that `vma enable` writes, and whether a text is such a one that nobody has changed since.
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "util/vma/settings.hpp"

namespace vma::command {

inline constexpr char kDropIn[] = "50-vma.conf";

// `preload`: the value of LD_PRELOAD. `more`: other settings, "KEY=VALUE". `made_folder`: the folder was not there
// before, and goes with it.
std::string drop_in_text(const std::string &preload, const std::vector<Setting> &variables,
                         const std::vector<std::string> &more, bool made_folder);

enum class Author {
    kUs,
    kEdited, // ours, and changed by hand
    kOther,
};
Author author_of(std::string_view text);
bool made_folder(std::string_view text);

} // namespace vma::command
