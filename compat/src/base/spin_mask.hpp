// SPDX-License-Identifier: BSD-2-Clause
// The signal mask of epoll_pwait, ppoll and pselect while the wait spins. It is off again before the wait sleeps, as
// the kernel puts it on itself there, in one step with the sleep.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include <cstddef>

namespace vma::mux {

inline constexpr std::size_t kMaskBytes = 8; // the kernel's set of signals is shorter than libc's, and it reads no more

class SpinMask
{
public:
    explicit SpinMask(const sigset_t *mask) : set_(mask != nullptr)
    {
        sigset_t given = {};
        if (!set_)
            return;
        memcpy(&given, mask, kMaskBytes);
        ::pthread_sigmask(SIG_SETMASK, &given, &old_);
    }
    ~SpinMask()
    {
        if (set_)
            ::pthread_sigmask(SIG_SETMASK, &old_, nullptr);
    }
    SpinMask(const SpinMask &) = delete;
    SpinMask &operator=(const SpinMask &) = delete;

private:
    const bool set_;
    sigset_t old_ = {};
};

} // namespace vma::mux
