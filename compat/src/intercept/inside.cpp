// SPDX-License-Identifier: BSD-2-Clause
// Functions whose bodies in libc read, write, duplicate or set up a descriptor, by calls that stay within libc and so
// pass none of the wrappers. Which there are is compared with libc's symbols by compat/test/intercept/symbols_test.py.
#include "compat/src/intercept/export.hpp"

#include <aio.h>
#include <execinfo.h>
#include <netinet/in.h>
#include <pty.h>
#include <sys/eventfd.h>
#include <utmp.h>

#include <climits>
#include <cstring>

#include "compat/src/config/log.hpp"
#include "compat/src/libc/fault.hpp"

namespace vma::intercept {

namespace {

// libc's threads for asynchronous input and output go to the kernel's socket, at a time of their own.
void queued(int fd)
{
    if (sock::Socket *const s = tracked(fd)) {
        const KeepErrno keep;
        sock::pin_to_kernel(*s, "asynchronous input or output (aio)");
    }
}

void queued(const void *request)
{
    if (request != nullptr && libc::faults_are_caught() && libc::can_read(request, sizeof(int)))
        queued(static_cast<const aiocb *>(request)->aio_fildes); // of an aiocb64 too: it is the first field
}

template <typename Request> void all_queued(Request *const *list, int count)
{
    if (list == nullptr || !libc::faults_are_caught()) // no socket of ours
        return;
    for (int i = 0; i < count && libc::can_read(list + i, sizeof(void *)); ++i)
        if (list[i] != nullptr && libc::can_read(list[i], sizeof *list[i]) && list[i]->aio_lio_opcode != LIO_NOP)
            queued(list[i]);
}
static_assert(offsetof(aiocb, aio_fildes) == 0 && offsetof(aiocb64, aio_fildes) == 0);

// After libc duplicated a terminal onto the standard descriptors.
void standard_descriptors_replaced()
{
    retire_range(STDIN_FILENO, STDERR_FILENO);
    config::stderr_replaced();
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT int aio_read(aiocb *request) noexcept
{
    queued(request);
    return real.aio_read(request);
}

VMA_EXPORT int aio_read64(aiocb64 *request) noexcept
{
    queued(request);
    return real.aio_read64(request);
}

VMA_EXPORT int aio_write(aiocb *request) noexcept
{
    queued(request);
    return libc::by_kernel(real.aio_write(request));
}

VMA_EXPORT int aio_write64(aiocb64 *request) noexcept
{
    queued(request);
    return libc::by_kernel(real.aio_write64(request));
}

VMA_EXPORT int lio_listio(int mode, aiocb *const list[], int count, sigevent *event) noexcept
{
    all_queued(list, count);
    return libc::by_kernel(real.lio_listio(mode, list, count, event));
}

VMA_EXPORT int lio_listio64(int mode, aiocb64 *const list[], int count, sigevent *event) noexcept
{
    all_queued(list, count);
    return libc::by_kernel(real.lio_listio64(mode, list, count, event));
}

VMA_EXPORT void backtrace_symbols_fd(void *const *frames, int count, int fd) noexcept
{
    if (sock::Socket *const s = tracked(fd))
        sock::pin_to_kernel(*s, "backtrace_symbols_fd()");
    real.backtrace_symbols_fd(frames, count, fd);
}

VMA_ALIAS(backtrace_symbols_fd) void __backtrace_symbols_fd(void *const *, int, int) noexcept;

// ---- one value of eight bytes, on any descriptor

VMA_EXPORT int eventfd_read(int fd, eventfd_t *value)
{
    if (tracked(fd) == nullptr) [[likely]]
        return libc::by_kernel(real.eventfd_read(fd, value));
    return ::read(fd, value, sizeof *value) == sizeof *value ? 0 : -1;
}

VMA_EXPORT int eventfd_write(int fd, eventfd_t value)
{
    if (tracked(fd) == nullptr) [[likely]]
        return libc::by_kernel(real.eventfd_write(fd, value));
    return ::write(fd, &value, sizeof value) == sizeof value ? 0 : -1;
}

// ---- setsockopt() within libc
//
// Filters of multicast sources (RFC 3678), which what comes over shared memory has to pass too.

VMA_EXPORT int setsourcefilter(int fd, uint32_t interface, const sockaddr *group, socklen_t length, uint32_t mode,
                               uint32_t count, const sockaddr_storage *sources) noexcept
{
    if (sock::Socket *const s = tracked(fd))
        sock::pin_to_kernel(*s, "setsourcefilter()");
    return real.setsourcefilter(fd, interface, group, length, mode, count, sources);
}

VMA_EXPORT int setipv4sourcefilter(int fd, in_addr interface, in_addr group, uint32_t mode, uint32_t count,
                                   const in_addr *sources) noexcept
{
    if (sock::Socket *const s = tracked(fd))
        sock::pin_to_kernel(*s, "setipv4sourcefilter()");
    return real.setipv4sourcefilter(fd, interface, group, mode, count, sources);
}

// ---- dup2() within libc

VMA_EXPORT int login_tty(int fd) noexcept
{
    let_loads_end();
    const int result = real.login_tty(fd);
    if (result == 0) {
        number_given(fd); // it closes that
        standard_descriptors_replaced();
    }
    return result;
}

VMA_EXPORT int forkpty(int *terminal, char *name, const termios *settings, const winsize *size) noexcept
{
    const int pid = fork_with_handlers([=] { return real.forkpty(terminal, name, settings, size); });
    if (pid == 0)
        standard_descriptors_replaced();
    else if (pid > 0)
        number_given(*terminal);
    return pid;
}
