// SPDX-License-Identifier: BSD-2-Clause
// Descriptors, and what may stand behind the pointers of a call.
#pragma once

#include <string>

namespace fabtest {

// What one call uses; `fd` is the descriptor that is tried.
struct Descriptors {
    int fd = -1;
    int other = -1; // the other end of fd
    int set = -1;   // an epoll set
    int pipe[2] = {-1, -1};
    int file = -1;
};

// The bytes of the thing of that name, as a call would want them. Dies where there is none.
std::string content(const std::string &name, const Descriptors &d);

} // namespace fabtest
