// SPDX-License-Identifier: BSD-2-Clause
// Which libvma.so a program is started with: that of the build tree or installation that this command is part of, else
// the one that the loader knows by its name.
#pragma once

#include <string>
#include <vector>

namespace vma::command {

struct Library {
    std::string path;                // full; "" if there is none
    std::vector<std::string> looked; // where, in this order
};

// `wanted`: a file that was named, which is then the only one; "" for none.
Library find_library(const std::string &wanted);

// The folder of this command's own file; "" if it can't be told.
std::string own_folder();

} // namespace vma::command
