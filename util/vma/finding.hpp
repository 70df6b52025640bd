// SPDX-License-Identifier: BSD-2-Clause
// What costs acceleration: a sentence on what was found and one on how to mend it. Who looks makes them; who prints
// them knows nothing else.
#pragma once

#include <stdio.h>

#include <string>
#include <vector>

namespace vma::command {

enum class Cost {
    kAll,  // nothing is accelerated
    kSome, // some sockets are not, or it is slower than it could be
    kNote, // nothing for most programs
};

struct Finding {
    Cost cost;
    std::string what;
    std::string mend;         // an imperative, without a full stop
    std::string setting = {}; // of a unit: "KEY=VALUE", which mends it; "" where more than that is to be thought of
};

using Findings = std::vector<Finding>;

void add(Findings &to, Findings from);

// One line each, the dearest first: "vma: nothing is accelerated: WHAT; MEND". Those that cost less than `least` are
// left out.
void print(FILE *out, const Findings &findings, Cost least);

bool any(const Findings &findings, Cost least);

} // namespace vma::command
