// SPDX-License-Identifier: BSD-2-Clause
// A buffer for a call that moves bytes from one descriptor to another: too much for the program's stack, and a call may
// not ask for memory. There are a few for the process; who finds none gets a small one, and takes more steps.
#pragma once

#include <cstddef>

namespace vma::sock {

class SpareRoom
{
public:
    SpareRoom() = default;
    ~SpareRoom() { give_back(); }
    SpareRoom(const SpareRoom &) = delete;
    SpareRoom &operator=(const SpareRoom &) = delete;

    // Behind a libc::WhenLeft for give_back(), where the call can be left. Again, where it was in vain.
    void take();
    void give_back(); // again, too

    // Those of other threads, which the child doesn't have, are free again.
    static void after_fork_in_child();

    char *bytes() { return bytes_; }
    std::size_t size() const { return size_; }

private:
    char small_[256];
    char *bytes_ = small_;
    std::size_t size_ = sizeof small_;
    int place_ = -1;
};

} // namespace vma::sock
