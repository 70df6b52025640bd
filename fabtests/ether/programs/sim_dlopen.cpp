// SPDX-License-Identifier: BSD-2-Clause
// Preloaded: who opens librdmacm.so.1 gets the library that SIM_NIC_LIBRARY names (sim_rdmacm.cpp). Whoever is linked
// with the real one, as libfabric.so is, keeps it. SIM_DLOPEN_LOG names a file that gets a line for each library that
// is opened: the thread's number and the name.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

static void log_opening(const char *file, const char *name)
{
    char line[500];
    const int length = std::snprintf(line, sizeof line, "%ld %.400s\n", ::syscall(SYS_gettid), name);
    const int fd =
        static_cast<int>(::syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
    if (fd >= 0 && ::syscall(SYS_write, fd, line, static_cast<std::size_t>(length)) == length)
        ::syscall(SYS_close, fd);
}

extern "C" [[gnu::visibility("default")]] void *dlopen(const char *name, int flags) noexcept
{
    static const auto real = reinterpret_cast<decltype(&::dlopen)>(::dlsym(RTLD_NEXT, "dlopen"));
    const char *const log = std::getenv("SIM_DLOPEN_LOG");
    if (name != nullptr && log != nullptr)
        log_opening(log, name);
    const char *const library = std::getenv("SIM_NIC_LIBRARY");
    if (name != nullptr && library != nullptr && std::strcmp(name, "librdmacm.so.1") == 0)
        name = library;
    return real(name, flags);
}
