// SPDX-License-Identifier: BSD-2-Clause
// A call that succeeds leaves errno as it was, as the kernel's own calls do. Programs rely on it: sockperf takes
// ECONNRESET in errno after a recv() for the end of the connection, whatever recv() returned.
#pragma once

#include <errno.h>

namespace vma::libc {

// For a stretch of ours around a call that has been made, or that can't fail.
class KeepErrno
{
public:
    KeepErrno() = default;
    ~KeepErrno() { errno = saved_; }
    KeepErrno(const KeepErrno &) = delete;
    KeepErrno &operator=(const KeepErrno &) = delete;

private:
    const int saved_ = errno;
};

// What the program's call comes to: its result, negative where it fails and errno says why.
template <typename Call> [[gnu::always_inline]] inline auto keep_errno(const Call &call)
{
    const int saved = errno;
    const auto result = call();
    if (result >= 0) [[likely]]
        errno = saved;
    return result;
}

} // namespace vma::libc
