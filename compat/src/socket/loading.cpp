// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/socket/loading.hpp"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include "compat/src/config/log.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/socket/helper_thread.hpp"
#include "compat/src/socket/provider.hpp"

namespace vma::sock {

namespace {

enum : std::uint32_t { kUntried, kWanted, kLoading, kTried };
constinit std::atomic<std::uint32_t> g_state{kUntried};
constinit pthread_t g_loader = {}; // who takes the word below joins it
constinit std::atomic<bool> g_to_join{false};

// Loading takes some milliseconds. On a machine that is busy the first connections may be accelerated a little later.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::int64_t kPatienceNs =
    60'000'000'000; // its allocator keeps the locks of the loading thread in the child of a fork
#else
constexpr std::int64_t kPatienceNs = 500'000'000;
#endif
constexpr std::int64_t kSecondNs = 1'000'000'000;

std::int64_t now()
{
    timespec time = {};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * kSecondNs + time.tv_nsec;
}

void *load(void *)
{
    load_provider();
    g_state.store(kTried, std::memory_order_release);
    libc::real.syscall(SYS_futex, reinterpret_cast<std::uint32_t *>(&g_state), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr,
                       nullptr, 0);
    return nullptr;
}

bool start_loader()
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    const bool started = start_quiet_thread(g_loader, attributes, load) == 0;
    pthread_attr_destroy(&attributes);
    if (started)
        g_to_join.store(true, std::memory_order_release);
    return started;
}

// A thread that ends frees memory: who forks in that moment may leave the allocator locked in the child.
void join_loader()
{
    int before = 0;
    if (!g_to_join.exchange(false, std::memory_order_acquire))
        return;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    ::pthread_join(g_loader, nullptr);
    ::pthread_setcancelstate(before, nullptr);
}

// False: it is still at it.
bool wait_for_a_while()
{
    const std::int64_t until = now() + kPatienceNs;
    while (g_state.load(std::memory_order_acquire) == kLoading) {
        const std::int64_t left = until - now();
        if (left <= 0)
            return false;
        const timespec limit = {left / kSecondNs, left % kSecondNs};
        libc::real.syscall(SYS_futex, reinterpret_cast<std::uint32_t *>(&g_state), FUTEX_WAIT_PRIVATE, kLoading, &limit,
                           nullptr, 0);
    }
    join_loader();
    return true;
}

} // namespace

bool provider_is_tried()
{
    std::uint32_t state = g_state.load(std::memory_order_acquire);
    if (state == kUntried)
        g_state.compare_exchange_strong(state, kWanted, std::memory_order_relaxed);
    return state == kTried;
}

bool load_wanted_provider()
{
    std::uint32_t wanted = kWanted;
    if (g_state.load(std::memory_order_relaxed) != kWanted ||
        !g_state.compare_exchange_strong(wanted, kLoading, std::memory_order_acquire))
        return false;
    const int saved = errno;
    if (!start_loader())
        load(nullptr); // no thread is to be had: whoever is in the loader's way now has to go out of it
    const bool done = wait_for_a_while();
    if (!done)
        VMA_LOG(kDebug, "the provider is not loaded yet, as another thread opens a library: connections are "
                        "accelerated when it is");
    errno = saved;
    return done;
}

void wait_for_load()
{
    wait_for_a_while();
}

void loading_after_fork_in_child()
{
    std::uint32_t loading = kLoading;
    g_to_join.store(false, std::memory_order_relaxed);
    if (g_state.compare_exchange_strong(loading, kTried, std::memory_order_relaxed))
        VMA_LOG(kWarn,
                "the provider was being loaded when the process was copied by fork(); all connections of the copy "
                "stay on the kernel");
}

} // namespace vma::sock
