// SPDX-License-Identifier: BSD-2-Clause
// A stack of this library's own, for rare work that takes more than a program may have left: its coroutines' stacks
// are some KiB, as are those that its signal handlers run on, and the kernel's calls need none of either.
#pragma once

#include <cstddef>
#include <type_traits>

namespace vma::sock {

// One piece of work at a time: a lock goes with it, which is held around run(). So the work lies within a critical
// stretch: no handler of the program's runs on this stack, none jumps out of it, and the lock is what a fork waits for.
// A log callback of the program's is called on the program's stack (config/stacks.hpp).
class OwnStack
{
public:
    // what(), which nothing leaves by a jump.
    template <typename What> void run(What &&what)
    {
        call([](void *work) { (*static_cast<std::remove_reference_t<What> *>(work))(); }, &what);
    }

private:
    static constexpr std::size_t kSize = std::size_t{128} << 10;  // as the helper thread's
    static constexpr std::size_t kGuard = std::size_t{128} << 10; // a page of any size, wherever it begins

    void call(void (*work)(void *), void *argument);
    void guard();

    bool guarded_ = false;
    alignas(16) char bytes_[kGuard + kSize] = {};
};

} // namespace vma::sock
