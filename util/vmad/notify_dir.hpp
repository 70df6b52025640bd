// SPDX-License-Identifier: BSD-2-Clause
// The folder where processes of the agent protocol have their files: vma_agent.PID.sock, which they hear answers at, and
// vma_agent.PID.pid, which they keep open as long as they live. Tells whose is closed, and takes away what the dead leave behind.
#pragma once

#include <string>
#include <sys/types.h>

#include "core/fd.hpp"

namespace vma::guard {

class NotifyDir
{
public:
    // Made if it is missing, for all users. An empty text, or what went wrong: a folder of another user than root and us may be
    // any other by the time it is used.
    std::string open(const char *path);
    int fd() const { return inotify_.get(); } // readable: files were closed

    // Calls `closed` with the number of each process whose pid file was closed. False: some were missed.
    template <typename Closed> bool read(Closed closed)
    {
        pid_t found[kAtATime];
        bool whole = true;
        for (int count; (count = read_some(found, whole)) >= 0;) {
            for (int i = 0; i < count; ++i)
                closed(found[i]);
        }
        return whole;
    }
    void clean(pid_t pid) const; // both files are gone

private:
    static constexpr int kAtATime = 64;
    int read_some(pid_t (&found)[kAtATime], bool &whole); // how many; -1: there is nothing more to read

    core::UniqueFd folder_;
    core::UniqueFd inotify_;
};

// Of "vma_agent.PID.pid"; -1: it is another.
pid_t process_of(const char *name);

} // namespace vma::guard
