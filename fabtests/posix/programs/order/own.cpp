// SPDX-License-Identifier: BSD-2-Clause
// A program with functions of its own in libc's place, and a lock that it holds while it closes a connection. No
// library may enter them with a lock held that close() waits for. It says how often the acceleration was in one of them
// at all.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

constexpr int kConnections = 20;
const std::chrono::seconds kPatience{patience::seconds()};

std::mutex g_lock; // the program's: held by main() while it closes
std::mutex g_news_lock;
std::condition_variable g_news;
constinit bool g_meets = false;       // main() waits for whoever is in here
constinit bool g_is_inside = false;   // somebody is, who is not of the program
constinit bool g_main_closes = false; // main() has the lock
constinit bool g_others_done = false; // all connections of the other thread have come and gone
constinit std::atomic<unsigned> g_calls{0};

bool is_of_provider(const void *address)
{
    Dl_info info;
    return ::dladdr(address, &info) != 0 && std::strstr(info.dli_fname, "libvma-fi") != nullptr;
}

// Stays until main() has the lock, then waits for it, as a function of a program may.
void meet_main()
{
    std::unique_lock news(g_news_lock);
    if (!g_meets)
        return;
    g_is_inside = true;
    g_news.notify_all();
    g_news.wait_for(news, kPatience, [] { return g_main_closes; });
    news.unlock();
    const std::lock_guard lock(g_lock);
}

void entered(const void *caller)
{
    if (!is_of_provider(caller))
        return;
    g_calls.fetch_add(1);
    meet_main();
}

void come_and_go()
{
    for (int i = 0; i < kConnections; ++i) {
        const fabtest::Ends ends = fabtest::accelerated();
        ::close(ends.a);
        ::close(ends.b);
    }
    const std::lock_guard news(g_news_lock);
    g_others_done = true;
    g_news.notify_all();
}

void wait_for_one_inside()
{
    std::unique_lock news(g_news_lock);
    g_news.wait(news, [] { return g_is_inside || g_others_done; });
}

void close_with_lock(int fd)
{
    const std::lock_guard lock(g_lock);
    {
        const std::lock_guard news(g_news_lock);
        g_main_closes = true;
        g_news.notify_all();
    }
    ::close(fd);
}

} // namespace

// All six arguments that a system call can have go on to the next function of the name.
#define OWN(name)                                                                                                      \
    extern "C"                                                                                                         \
        [[gnu::visibility("default")]] long own_##name(long a, long b, long c, long d, long e, long f) asm(#name);     \
    long own_##name(long a, long b, long c, long d, long e, long f)                                                    \
    {                                                                                                                  \
        static const auto next = reinterpret_cast<decltype(&own_##name)>(::dlsym(RTLD_NEXT, #name));                   \
        entered(__builtin_return_address(0));                                                                          \
        return next(a, b, c, d, e, f);                                                                                 \
    }

OWN(close)
OWN(socket)
OWN(connect)
OWN(bind)
OWN(accept4)
OWN(getsockopt)
OWN(setsockopt)
OWN(sendmsg)
OWN(recvmsg)
OWN(read)
OWN(write)
OWN(poll)
OWN(epoll_create1)
OWN(epoll_ctl)
OWN(epoll_wait)
OWN(eventfd)
OWN(timerfd_create)
OWN(fcntl)
OWN(ioctl)
OWN(open)
OWN(openat)
OWN(opendir)
OWN(memfd_create)
OWN(unlinkat)

int main()
{
    const fabtest::Ends first = fabtest::accelerated();
    g_meets = true;
    std::thread other(come_and_go);
    wait_for_one_inside();
    close_with_lock(first.a);
    other.join();
    char byte = 0;
    const ssize_t end = ::read(first.b, &byte, 1);
    std::printf("read after the close: %zd; calls by the provider: %u\n", end, g_calls.load());
    return 0;
}
