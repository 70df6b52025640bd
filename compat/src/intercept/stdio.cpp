// SPDX-License-Identifier: BSD-2-Clause
// stdio on a socket: it reads and writes inside libc, past our wrappers. The socket goes to the kernel before; a stream
// that is made while bytes are left that the library alone has reads and writes by our calls.
#include "compat/src/intercept/export.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace vma::intercept {

namespace {

void pin(int fd, const char *reason)
{
    if (sock::Socket *const s = tracked(fd)) {
        const KeepErrno keep;
        sock::pin_to_kernel(*s, reason);
    }
}

int number_of(void *cookie)
{
    return static_cast<int>(reinterpret_cast<std::intptr_t>(cookie));
}

ssize_t read_stream(void *cookie, char *bytes, std::size_t count)
{
    return ::read(number_of(cookie), bytes, count);
}

ssize_t write_stream(void *cookie, const char *bytes, std::size_t count)
{
    const ssize_t n = ::write(number_of(cookie), bytes, count);
    return n < 0 ? 0 : n; // as fopencookie(3) has it
}

int seek_stream(void *, off64_t *, int)
{
    errno = ESPIPE;
    return -1;
}

int close_stream(void *cookie)
{
    return ::close(number_of(cookie));
}

// Of a socket with bytes that a peer had ended, or that were here when it was given to the kernel: libc's read() would
// pass over them.
FILE *open_by_calls(int fd, const char *mode)
{
    if (mode == nullptr || strchr("rwa", mode[0]) == nullptr || mode[0] == '\0') {
        errno = EINVAL;
        return nullptr;
    }
    FILE *const stream = ::fopencookie(reinterpret_cast<void *>(static_cast<std::intptr_t>(fd)), mode,
                                       {read_stream, write_stream, seek_stream, close_stream});
    if (stream != nullptr)
        stream->_fileno = fd; // what fileno() says
    return stream;
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT FILE *fdopen(int fd, const char *mode) noexcept
{
    pin(fd, "fdopen()");
    if (const sock::Socket *const s = tracked(fd); s != nullptr && sock::is_offloaded(*s)) [[unlikely]]
        return open_by_calls(fd, mode);
    return real.fdopen(fd, mode);
}

VMA_ALIAS(fdopen) FILE *_IO_fdopen(int, const char *) noexcept;

VMA_EXPORT int vdprintf(int fd, const char *format, va_list arguments)
{
    pin(fd, "dprintf()");
    return libc::by_kernel(real.vdprintf(fd, format, arguments));
}

VMA_EXPORT int dprintf(int fd, const char *format, ...)
{
    pin(fd, "dprintf()");
    std::va_list arguments;
    va_start(arguments, format);
    const int result = libc::by_kernel(real.vdprintf(fd, format, arguments));
    va_end(arguments);
    return result;
}

VMA_EXPORT int __vdprintf_chk(int fd, int flag, const char *format, va_list arguments)
{
    pin(fd, "dprintf()");
    return libc::by_kernel(real.__vdprintf_chk(fd, flag, format, arguments));
}

VMA_EXPORT int __dprintf_chk(int fd, int flag, const char *format, ...)
{
    pin(fd, "dprintf()");
    std::va_list arguments;
    va_start(arguments, format);
    const int result = libc::by_kernel(real.__vdprintf_chk(fd, flag, format, arguments));
    va_end(arguments);
    return result;
}
