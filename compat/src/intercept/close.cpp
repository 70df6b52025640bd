// SPDX-License-Identifier: BSD-2-Clause
// What closes descriptors. Our own ones (private_fd.hpp) stay open whatever the program closes.
#include "compat/src/intercept/export.hpp"

#include <pthread.h>

#include "compat/src/config/log.hpp"
#include "compat/src/intercept/call_log.hpp"
#include "compat/src/intercept/own_tables.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/when_left.hpp"

namespace vma::intercept {

namespace {

// close_range() around our own descriptors.
int close_the_programs(unsigned first, unsigned last, int flags)
{
    unsigned from = first;
    for (int own = libc::next_private(first, last); own >= 0; own = libc::next_private(from, last)) {
        const auto number = static_cast<unsigned>(own);
        if (number > from && libc::by_kernel(real.close_range(from, number - 1, flags)) != 0)
            return -1;
        from = number + 1;
    }
    return from <= last ? libc::by_kernel(real.close_range(from, last, flags)) : 0;
}

// Who leaves it, by cancellation or a handler's jump, has closed the descriptor or has it as it was.
int close_as_a_whole(int fd)
{
    const libc::Stretch stretch;
    const libc::NotCancelled whole;
    retire(fd);
    if (fd == STDERR_FILENO)
        config::stderr_closed();
    return libc::by_kernel(real.close(fd));
}

[[gnu::noinline]] int close_ours(int fd)
{
    VMA_LOG(kDebug, "ENTER: close(fd=%d)", fd);
    ::pthread_testcancel();
    return left("close", close_as_a_whole(fd));
}

void closing_stdio(FILE *stream)
{
    const int fd = ::fileno_unlocked(stream);
    if (fd >= 0 && ours(fd)) [[unlikely]]
        retire(fd);
    if (fd == STDERR_FILENO) [[unlikely]]
        config::stderr_closed();
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT int close(int fd)
{
    if (ours(fd)) [[unlikely]]
        return close_ours(fd);
    let_loads_end();
    if (libc::is_private(fd)) [[unlikely]] {
        errno = EBADF; // not the program's
        return -1;
    }
    if (fd == STDERR_FILENO) [[unlikely]]
        config::stderr_closed();
    return libc::by_kernel(real.close(fd));
}

VMA_ALIAS(close) int __close(int);

VMA_EXPORT int close_range(unsigned first, unsigned last, int flags) noexcept
{
    before_close_range(first, last, flags);
    if (first > last || (flags & static_cast<int>(CLOSE_RANGE_CLOEXEC)) != 0)
        return real.close_range(first, last, flags); // closes nothing
    let_loads_end();
    const libc::Stretch stretch;
    retire_range(first, last);
    return close_the_programs(first, last, flags);
}

VMA_EXPORT void closefrom(int first) noexcept
{
    const unsigned from = first > 0 ? static_cast<unsigned>(first) : 0;
    let_loads_end();
    const libc::Stretch stretch;
    retire_range(from, ~0U);
    if (close_the_programs(from, ~0U, 0) != 0)
        real.closefrom(first); // knows what to do where the kernel has no close_range()
}

VMA_EXPORT int fclose(FILE *stream)
{
    closing_stdio(stream);
    return libc::by_kernel(real.fclose(stream));
}

VMA_ALIAS(fclose) int _IO_fclose(FILE *);

VMA_EXPORT FILE *freopen(const char *path, const char *mode, FILE *stream)
{
    let_loads_end();
    number_given(::fileno_unlocked(stream));
    return libc::by_kernel(real.freopen(path, mode, stream));
}

VMA_EXPORT FILE *freopen64(const char *path, const char *mode, FILE *stream)
{
    let_loads_end();
    number_given(::fileno_unlocked(stream));
    return libc::by_kernel(real.freopen64(path, mode, stream));
}
