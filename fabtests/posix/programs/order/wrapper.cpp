// SPDX-License-Identifier: BSD-2-Clause
// Another preloaded library, with functions of its own around libc's: they count, and go on to the next. Tells what it
// has counted when the process ends.
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "fabtests/posix/programs/order/stage.hpp"

#define EXPORT extern "C" [[gnu::visibility("default")]]

extern "C" [[gnu::weak]] void order_stage(const char *name); // not in every process that this is preloaded to

namespace {

constinit std::atomic<unsigned> g_calls{0};

// Looked up once: dlsym() would wait for a thread that opens a library.
template <typename Function> Function next(Function &known, const char *name)
{
    g_calls.fetch_add(1, std::memory_order_relaxed);
    if (known == nullptr)
        known = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
    return known;
}

[[gnu::constructor]] void wrapper_begins()
{
    if (order_stage != nullptr)
        order_stage("constructor of another preloaded library");
}

[[gnu::destructor]] void wrapper_ends()
{
    if (order_stage == nullptr)
        return;
    order_stage("destructor of another preloaded library");
    constexpr char kSome[] = "the other library was called\n";
    static_cast<void>(::write(STDOUT_FILENO, kSome, g_calls.load() > 100 ? sizeof kSome - 1 : 0));
}

} // namespace

#define NEXT(function, ...)                                                                                            \
    static constinit decltype(&::function) known = nullptr;                                                            \
    return next(known, #function)(__VA_ARGS__)

EXPORT int socket(int family, int type, int protocol) noexcept
{
    NEXT(socket, family, type, protocol);
}

EXPORT int connect(int fd, const sockaddr *address, socklen_t length)
{
    NEXT(connect, fd, address, length);
}

EXPORT int close(int fd)
{
    NEXT(close, fd);
}

EXPORT ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
    NEXT(send, fd, bytes, length, flags);
}

EXPORT ssize_t recv(int fd, void *bytes, size_t length, int flags)
{
    NEXT(recv, fd, bytes, length, flags);
}
