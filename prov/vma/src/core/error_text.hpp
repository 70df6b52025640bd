// SPDX-License-Identifier: BSD-2-Clause
// What an errno means, without a buffer that threads share. strerrordesc_np() is glibc 2.32's; this one is any glibc's.
#pragma once

#include <cstring>

namespace vma::core {

// nullptr: there is no such error. Lives for ever. Any thread.
inline const char *error_text(int error) noexcept
{
#if defined(__GLIBC__)
    char room[64]; // for the text of an error that is unknown; what is known has its own
    const char *const text = ::strerror_r(error, room, sizeof room);
    return text != room ? text : nullptr;
#else
    return std::strerror(error); // musl's is a table, and has one text for what is unknown
#endif
}

} // namespace vma::core
