// SPDX-License-Identifier: BSD-2-Clause
// How a function that stands for one of libc's fails: errno says why, the result is -1.
#pragma once

#include <errno.h>

namespace vma::libc {

inline int fail(int error)
{
    errno = error;
    return -1;
}

} // namespace vma::libc
