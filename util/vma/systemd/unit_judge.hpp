// SPDX-License-Identifier: BSD-2-Clause
// Which settings of a service cost acceleration: those that doc/sandboxes.md has tried. A pure function.
#pragma once

#include <string>

#include "util/vma/finding.hpp"
#include "util/vma/systemd/unit.hpp"

namespace vma::command {

struct Intent {          // of who enables it
    std::string library; // full path
    bool ethernet = false;
};

Findings judge(const Unit &unit, const Intent &intent);

// Settings that undo what of this can be undone by a setting: "KEY=VALUE", in the order in which they are to stand.
std::vector<std::string> mend(Unit unit, const Intent &intent);

// Of the system calls and sets of them that acceleration needs, the first that these values of SystemCallFilter=
// refuse, as a value that allows it; "" if none. `kills`: a call that is refused ends the process, so those count, too,
// that acceleration can do without.
std::string refused_by(const std::vector<std::string> &filters, bool kills);

} // namespace vma::command
