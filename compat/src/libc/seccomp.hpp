// SPDX-License-Identifier: BSD-2-Clause
// What the kernel says of the filters of system calls (seccomp(2)) that a thread is under. They are never taken off,
// and what a thread makes (threads, processes, programs) has them too. What the library makes of it is in
// engine/sandbox.hpp.
#pragma once

namespace vma::libc {

struct Seccomp {
    int mode = 0;    // of prctl(PR_GET_SECCOMP): 0 none, 1 strict, 2 a filter; -1 can't be told
    int filters = 0; // how many; -1 if the kernel (before 5.9) does not count them
    bool operator==(const Seccomp &) const = default;
};

// Of the calling thread, from its status in /proc. A filter that ends the process for opening a file does so:
// PR_GET_SECCOMP, which would be faster, is allowed by fewer. Where there is no /proc it is asked, and knows no number.
// Keeps errno; uses no memory of the heap.
Seccomp seccomp_of_thread();

} // namespace vma::libc
