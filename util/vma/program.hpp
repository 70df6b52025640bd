// SPDX-License-Identifier: BSD-2-Clause
// The program that is to run: which file it is, and whether a preloaded library can have a part in it.
#pragma once

#include <sys/types.h>

#include <string>

#include "util/vma/elf.hpp"
#include "util/vma/finding.hpp"

namespace vma::command {

struct Program {
    std::string name;       // as it was given
    std::string path;       // "" if it was not found
    Image image;            // of a script: its interpreter's
    std::string runs;       // the file of `image`
    bool sets_user = false; // or the group, and who starts it is another
    bool has_capabilities = false;
};

// By PATH, as execvp() looks for it. `root` is put before full paths ("" for this system's), `search` is the PATH to
// look in; `user` and `group` start it.
struct Starter {
    std::string root;
    std::string search;
    uid_t user = 0;
    gid_t group = 0;
};
Program look_at_program(const std::string &name, const Starter &starter);

// `library`: the libvma.so that is to be in it; "" for one of this command's own architecture.
Findings judge(const Program &program, const std::string &library);

// Whether the preloaded library would keep it from starting: its loader can't load it, and gives up.
bool refuses_library(const Program &program);

} // namespace vma::command
