// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/finding.hpp"

#include <algorithm>
#include <iterator>

namespace vma::command {

namespace {

const char *name_of(Cost cost)
{
    switch (cost) {
    case Cost::kAll:
        return "nothing is accelerated";
    case Cost::kSome:
        return "less is accelerated";
    case Cost::kNote:
        return "note";
    }
    return "?";
}

// A program's name may have bytes that a terminal would follow.
std::string printable(std::string text)
{
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
    return text;
}

} // namespace

void add(Findings &to, Findings from)
{
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

void print(FILE *out, const Findings &findings, Cost least)
{
    for (const Cost cost : {Cost::kAll, Cost::kSome, Cost::kNote})
        for (const Finding &one : findings)
            if (one.cost == cost && cost <= least)
                fprintf(out, "vma: %s: %s; %s\n", name_of(cost), printable(one.what).c_str(),
                        printable(one.mend).c_str());
}

bool any(const Findings &findings, Cost least)
{
    return std::any_of(findings.begin(), findings.end(), [&](const Finding &one) { return one.cost <= least; });
}

} // namespace vma::command
