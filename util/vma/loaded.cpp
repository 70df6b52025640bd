// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/loaded.hpp"

#include "util/vma/files.hpp"

namespace vma::command {

Program running_program(const Place &place)
{
    const std::string link = "/proc/" + std::to_string(place.pid) + "/exe";
    Program p = look_at_program(link, {"", "", place.user, 0});
    p.path = read_link(link);
    p.runs = p.path;
    p.sets_user = p.has_capabilities = false; // AT_SECURE tells what came of them
    return p;
}

Findings judge_loaded(const Place &place, const Program &program)
{
    Findings out = judge(program, "");
    if (place.is_privileged)
        out.push_back({Cost::kAll,
                       program.path + " runs with more rights than who has started it (set-user-ID or capabilities)",
                       "give it a line `privileged` in /etc/libvma.conf (libvma.conf(5))"});
    if (place.library.empty() && out.empty())
        out.push_back({Cost::kAll, program.path + " runs without libvma.so",
                       "start it again by `vma run`, or its service after `vma enable`"});
    if (place.library_is_gone)
        out.push_back({Cost::kNote, place.library + " was replaced or removed since it was started",
                       "start the program again to have the new one"});
    return out;
}

} // namespace vma::command
