// SPDX-License-Identifier: BSD-2-Clause
// The folder where processes of the agent protocol have their files: vma_agent.PID.sock, which they hear answers at,
// and vma_agent.PID.pid, which VMA's own daemon watches. Takes away what the dead leave behind; what happens to a file
// says nothing here, as the folder and mostly the files are open to all users.
#pragma once

#include <string>
#include <sys/types.h>

#include "core/fd.hpp"

namespace vma::guard {

class NotifyDir
{
public:
    // Made if it is missing, for all users. An empty text, or what went wrong: a folder of another user than root and
    // us may be any other by the time it is used.
    std::string open(const char *path);
    void clean(pid_t pid) const; // both files are gone

private:
    core::UniqueFd folder_;
};

} // namespace vma::guard
