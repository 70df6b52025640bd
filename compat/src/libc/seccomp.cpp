// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/libc/seccomp.hpp"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

#include "compat/src/libc/real.hpp"
#include "compat/src/libc/when_left.hpp"

namespace vma::libc {

namespace {

// The value of a line of the text, or -1.
int value_of(const char *text, const char *line)
{
    const char *const found = strstr(text, line);
    return found != nullptr ? atoi(found + strlen(line)) : -1;
}

constexpr char kMode[] = "\nSeccomp:";
constexpr char kFilters[] = "\nSeccomp_filters:";

// The two lines follow each other, after one that may be long (the groups): what is kept of the piece before may have
// their beginning.
Seccomp read_status(int fd)
{
    constexpr std::size_t kKept = 64;
    constexpr ssize_t kPiece = 1024;
    char text[kPiece + kKept] = {};
    std::size_t filled = 0;
    Seccomp found = {-1, -1};
    for (;;) {
        const ssize_t n = real.read(fd, text + filled, kPiece - 1);
        if (n <= 0)
            return found;
        filled += static_cast<std::size_t>(n);
        text[filled] = '\0';
        const char *const mode = strstr(text, kMode);
        if (mode != nullptr && strchr(mode + 1, '\n') != nullptr)
            found.mode = value_of(text, kMode);
        const char *const filters = strstr(text, kFilters);
        if (filters != nullptr && strchr(filters + 1, '\n') != nullptr)
            found.filters = value_of(text, kFilters);
        if (found.mode >= 0 && (found.filters >= 0 || n < kPiece - 1))
            return found;
        const std::size_t kept = filled < kKept ? filled : kKept;
        memmove(text, text + filled - kept, kept);
        filled = kept;
    }
}

// Out of descriptors, or no /proc: both are no answer of a filter.
bool is_no_answer(int error)
{
    return error == ENOENT || error == EMFILE || error == ENFILE || error == ENOTDIR;
}

} // namespace

Seccomp seccomp_of_thread()
{
    const int saved = errno;
    const NotCancelled whole; // the offload lock is held, or the pool's
    Seccomp found = {-1, -1};
    const int fd = real.open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        found = read_status(fd);
        real.close(fd);
    } else if (is_no_answer(errno)) {
        found.mode = real.prctl(PR_GET_SECCOMP, 0UL, 0UL, 0UL, 0UL);
        if (found.mode < 0 && errno == EINVAL) // a kernel without it
            found.mode = 0;
        if (found.mode == 0)
            found.filters = 0;
    }
    errno = saved;
    return found;
}

} // namespace vma::libc
