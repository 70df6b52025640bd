// SPDX-License-Identifier: BSD-2-Clause
// The register of our descriptors is a bitmap in zero pages: the child's fork handler walks it with nothing
// but loads and close(2), which is all that a child of a threaded process may do.
#include "core/fd.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/held.hpp"
#include "core/kernel.hpp"
#include "include/vma/raised_limit.hpp"

namespace vma::core {
namespace {

constexpr int kMaxRegistered = 1 << 20; // the kernel's default ceiling (fs.nr_open)
constexpr int kBitsPerWord = 64;
constexpr int kHighBase = 512; // low enough for a small descriptor table and for select()

// The process's, without a lock: what fork_child() reads may have been written by a thread that the child doesn't have.
constinit std::atomic<std::uint64_t> g_registered[kMaxRegistered / kBitsPerWord]; // a bit a descriptor of UniqueFd's
constinit std::atomic<int> g_words_used{0};                                       // of g_registered; it only grows
constinit std::atomic<std::uint32_t> g_generation{0};                             // written by fork_child() alone
constinit NotedLimit g_limit;
// A lock itself: fork() holds it, and ForkGuard.
constinit pthread_mutex_t g_fork_mutex = PTHREAD_MUTEX_INITIALIZER;

void register_fd(int fd)
{
    if (fd < 0 || fd >= kMaxRegistered)
        return;
    const int word = fd / kBitsPerWord;
    g_registered[word].fetch_or(std::uint64_t{1} << (fd % kBitsPerWord), std::memory_order_relaxed);
    int used = g_words_used.load(std::memory_order_relaxed);
    while (used <= word && !g_words_used.compare_exchange_weak(used, word + 1, std::memory_order_relaxed))
        ;
}

void unregister_fd(int fd)
{
    if (fd < 0 || fd >= kMaxRegistered)
        return;
    g_registered[fd / kBitsPerWord].fetch_and(~(std::uint64_t{1} << (fd % kBitsPerWord)), std::memory_order_relaxed);
}

void fork_prepare()
{
    pthread_mutex_lock(&g_fork_mutex);
}

void fork_parent()
{
    pthread_mutex_unlock(&g_fork_mutex);
}

void fork_child()
{
    const int saved_errno = errno;
    g_generation.fetch_add(1, std::memory_order_relaxed);
    const int used = g_words_used.load(std::memory_order_relaxed);
    for (int word = 0; word < used; ++word) {
        std::uint64_t bits = g_registered[word].exchange(0, std::memory_order_relaxed);
        for (; bits != 0; bits &= bits - 1)
            kernel::close(word * kBitsPerWord + std::countr_zero(bits));
    }
    pthread_mutex_unlock(&g_fork_mutex);
    errno = saved_errno;
}

// At load: a program that has handlers of its own for what it does with the provider can then tell when ours are there,
// and make its own run before them.
[[gnu::constructor]] void install_handlers()
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

int set_limit(const rlimit *now, rlimit *before)
{
    return kernel::call(SYS_prlimit64, 0, RLIMIT_NOFILE, now, before);
}

int high_base(const rlimit &limit)
{
    return static_cast<int>(std::min<rlim_t>(kHighBase, limit.rlim_cur / 2));
}

bool is_high(int fd, const rlimit &limit)
{
    const bool may_be_above = limit.rlim_cur < std::min(kSmallLimit, limit.rlim_max);
    return may_be_above ? static_cast<rlim_t>(fd) >= limit.rlim_cur : fd >= high_base(limit);
}

// -1: no better number is to be had.
int duplicate_high(int fd, const rlimit &limit)
{
    const auto duplicate = [=](int lowest) { return kernel::fcntl(fd, F_DUPFD_CLOEXEC, lowest); };
    const int above = duplicate_above(limit, set_limit, duplicate);
    return above >= 0 ? above : duplicate(high_base(limit));
}

// `fd` itself where its number is good.
int move_high(int fd, const rlimit &limit)
{
    return is_high(fd, limit) ? fd : duplicate_high(fd, limit);
}

} // namespace

std::uint32_t fork_generation() noexcept
{
    return g_generation.load(std::memory_order_relaxed);
}

bool owns_fd(int fd) noexcept
{
    if (fd < 0 || fd >= kMaxRegistered)
        return false;
    return ((g_registered[fd / kBitsPerWord].load(std::memory_order_relaxed) >> (fd % kBitsPerWord)) & 1U) != 0;
}

ForkGuard::ForkGuard() noexcept : counted_(begin_hold())
{
    pthread_mutex_lock(&g_fork_mutex);
}

ForkGuard::~ForkGuard()
{
    pthread_mutex_unlock(&g_fork_mutex);
    end_hold(counted_);
}

void UniqueFd::reset() noexcept
{
    if (fd_ < 0)
        return;
    const int fd = std::exchange(fd_, -1);
    if (generation_ != fork_generation())
        return;
    const int saved_errno = errno;
    unregister_fd(fd);
    kernel::close(fd);
    errno = saved_errno;
}

int UniqueFd::release() noexcept
{
    unregister_fd(fd_);
    return std::exchange(fd_, -1);
}

UniqueFd adopt_fd(int fd) noexcept
{
    if (fd < 0)
        return UniqueFd();
    const int saved_errno = errno;
    const int high = g_limit.with(limit_of_descriptors, [fd](const rlimit &limit) { return move_high(fd, limit); });
    const int chosen = high >= 0 ? high : fd;
    if (chosen == fd)
        kernel::fcntl(fd, F_SETFD, FD_CLOEXEC);
    else
        kernel::close(fd);
    register_fd(chosen);
    errno = saved_errno;
    return UniqueFd(chosen);
}

bool set_nonblocking(int fd) noexcept
{
    const int flags = kernel::fcntl(fd, F_GETFL);
    return flags >= 0 && kernel::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

UniqueFd make_memory(const char *name, std::size_t size, unsigned flags) noexcept
{
    rlimit limit{}; // a memfd is a file to it, and one above the limit raises SIGXFSZ
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur) {
        errno = ENOSPC;
        return {};
    }
    UniqueFd made = make_fd([=] { return kernel::memfd_create(name, MFD_CLOEXEC | flags); });
    if (made && kernel::ftruncate(made.get(), static_cast<off_t>(size)) != 0)
        made.reset();
    return made;
}

UniqueFd duplicate_fd(int fd) noexcept
{
    const ForkGuard guard;
    int copy = g_limit.with(limit_of_descriptors, [fd](const rlimit &limit) { return duplicate_high(fd, limit); });
    if (copy < 0 && errno == EINVAL)
        copy = kernel::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return adopt_fd(copy);
}

bool watch_fd(int set, int fd) noexcept
{
    epoll_event interest{};
    interest.events = EPOLLIN;
    return kernel::epoll_ctl(set, EPOLL_CTL_ADD, fd, &interest) == 0;
}

void unwatch_fd(int set, int fd) noexcept
{
    static_cast<void>(kernel::epoll_ctl(set, EPOLL_CTL_DEL, fd, nullptr));
}

} // namespace vma::core
