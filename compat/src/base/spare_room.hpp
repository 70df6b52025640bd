// SPDX-License-Identifier: BSD-2-Clause
// A buffer for a call that moves bytes from one descriptor to another: too much for the program's stack, and a call may
// not ask for memory. There are a few for the process; who finds none gets a small one, and takes more steps.
#pragma once

#include <cstddef>

namespace vma::sock {

// One of these few.
class SharedRoom
{
public:
    static constexpr std::size_t kSize = 16384;

    SharedRoom() = default;
    ~SharedRoom() { give_back(); }
    SharedRoom(const SharedRoom &) = delete;
    SharedRoom &operator=(const SharedRoom &) = delete;

    // Behind a libc::WhenLeft for give_back(), where the call can be left. Again, where it was in vain.
    void take();
    void give_back(); // again, too

    // Those of other threads, which the child doesn't have, are free again.
    static void after_fork_in_child();

    char *bytes() const; // nullptr: there is none

private:
    int place_ = -1;
};

class SpareRoom
{
public:
    void take() { shared_.take(); }
    void give_back() { shared_.give_back(); }

    char *bytes() { return has_shared() ? shared_.bytes() : small_; }
    std::size_t size() const { return has_shared() ? SharedRoom::kSize : sizeof small_; }

private:
    bool has_shared() const { return shared_.bytes() != nullptr; }

    char small_[256];
    SharedRoom shared_;
};

} // namespace vma::sock
