// SPDX-License-Identifier: BSD-2-Clause
// To be preloaded: libc's allocator behind one lock, which a handler of fork() takes, as jemalloc's does. Whoever asks
// for memory meanwhile waits until the fork is over; other threads than the first stay in it for a while.
#include <pthread.h>
#include <unistd.h>

#include <cstddef>

extern "C" void *__libc_malloc(std::size_t size); // NOLINT: glibc's name
extern "C" void __libc_free(void *memory);        // NOLINT

namespace {

constexpr ::useconds_t kStay = 400;

::pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
const ::pid_t g_first = ::getpid();

void lock()
{
    ::pthread_mutex_lock(&g_lock);
}

void unlock()
{
    ::pthread_mutex_unlock(&g_lock);
}

struct Within {
    Within()
    {
        lock();
        if (::gettid() != g_first)
            ::usleep(kStay);
    }
    ~Within() { unlock(); }
    Within(const Within &) = delete;
    Within &operator=(const Within &) = delete;
};

[[gnu::constructor]] void begin()
{
    ::pthread_atfork(&lock, &unlock, &unlock);
}

} // namespace

extern "C" [[gnu::visibility("default")]] void *malloc(std::size_t size)
{
    const Within within;
    return __libc_malloc(size);
}

extern "C" [[gnu::visibility("default")]] void free(void *memory)
{
    const Within within;
    __libc_free(memory);
}
