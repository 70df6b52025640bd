// SPDX-License-Identifier: BSD-2-Clause
// What an errno means, for the log: without a buffer that threads share, and by what glibc 2.31 has.
#pragma once

#include <cerrno>
#include <cstring>

namespace vma::sock {

// Of the calling thread's errno, which stays. Lives as long as this.
class ErrorText
{
public:
    ErrorText() : text_(::strerror_r(errno, room_, sizeof room_)) {}
    const char *text() const { return text_; }

private:
    char room_[64];
    const char *text_; // GNU's function: what is known has a text of its own
};

} // namespace vma::sock
