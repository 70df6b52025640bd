// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/helper_thread.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "compat/src/config/aliases.hpp"
#include "compat/src/config/cpu_list.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/futex.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/when_left.hpp"

namespace vma::sock {

constinit HelperThread g_helper;

namespace {

enum : std::uint32_t { kThere, kBeginning };
static_assert(kThere == 0, "what HelperThread::begun begins with");

constexpr std::size_t kHelperStack = std::size_t{128} * 1024;
constexpr std::uint32_t kMostTurnMs = 100;
constexpr const char *kStays = "the internal thread stays where it is";

bool is_minus_one(const char *text)
{
    int value = 0;
    int length = 0;
    return sscanf(text, " %d %n", &value, &length) == 1 && value == -1 && text[length] == '\0';
}

void read_affinity()
{
    const char *const value = config::params().internal_thread_affinity;
    g_helper.place.bound = false;
    if (value == nullptr || is_minus_one(value))
        return;
    g_helper.place.bound = config::parse_cpus(value, g_helper.place.cpus);
    if (!g_helper.place.bound)
        VMA_LOG(kWarn,
                "VMA_INTERNAL_THREAD_AFFINITY=%s is not valid (expected a mask as 0x3, a list of processors as 0,4-7, "
                "or -1): %s",
                value, kStays);
}

// Only a file of a control group is written to, whatever else may have the name.
bool in_control_groups(int fd)
{
    struct statfs system = {};
    if (::fstatfs(fd, &system) != 0)
        return false;
    if (system.f_type == CGROUP_SUPER_MAGIC || system.f_type == CGROUP2_SUPER_MAGIC)
        return true;
    errno = EMEDIUMTYPE;
    return false;
}

// The list of threads that a cpuset has, to write to; version 1 of control groups calls it so, version 2 otherwise.
int open_threads(const char *cpuset)
{
    const int folder = libc::real.open(cpuset, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = folder;
    for (const char *const name : {"tasks", "cgroup.threads"})
        if (folder >= 0 && (fd == folder || (fd < 0 && errno == ENOENT)))
            fd = libc::real.openat(folder, name, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const int error = errno;
    if (folder >= 0)
        libc::real.close(folder);
    errno = error;
    return fd;
}

void warn_about_cpuset(const char *value)
{
    VMA_LOG(kWarn, "VMA_INTERNAL_THREAD_CPUSET=%s can't be entered (expected the folder of a cpuset): %s: %s", value,
            errno == EMEDIUMTYPE ? "it is none" : strerror(errno), kStays);
}

// By the thread that starts it, so that the program's descriptors don't change under it in the middle of its work. That
// is one of the program's, or one for which those wait before they are given a number (loading.hpp).
void open_cpuset()
{
    const char *const value = config::params().internal_thread_cpuset;
    g_helper.place.tasks = -1;
    if (value == nullptr)
        return;
    const int fd = open_threads(value);
    if (fd >= 0 && in_control_groups(fd)) {
        g_helper.place.tasks = libc::make_private(fd);
        return;
    }
    warn_about_cpuset(value);
    if (fd >= 0)
        libc::real.close(fd);
}

void enter_cpuset()
{
    if (libc::real.write(g_helper.place.tasks, "0", 1) != 1) // the thread that writes
        warn_about_cpuset(config::params().internal_thread_cpuset);
    libc::close_private(g_helper.place.tasks);
}

// A profile's processors may be none of the process's: nobody has asked for them.
void warn_about_affinity(const char *error)
{
    constexpr const char *kVariable = "VMA_INTERNAL_THREAD_AFFINITY";
    const config::Level level = config::variable(kVariable) != nullptr ? config::Level::kWarn : config::Level::kDebug;
    if (config::log_enabled(level))
        config::log_line(level, "%s=%s: none of these processors is to be had (%s): %s", kVariable,
                         config::params().internal_thread_affinity, error, kStays);
}

void helper_has_begun()
{
    g_helper.begun.store(kThere, std::memory_order_release);
    libc::futex_wake(g_helper.begun);
}

void *take_place(void *)
{
    helper_has_begun();
    g_helper.turn.lock();
    // In this order: entering a cpuset may give the thread all the set's processors.
    if (g_helper.place.tasks >= 0)
        enter_cpuset();
    if (g_helper.place.bound &&
        ::sched_setaffinity(0, sizeof g_helper.place.cpus.words,
                            reinterpret_cast<const cpu_set_t *>(g_helper.place.cpus.words.data())) != 0)
        warn_about_affinity(strerror(errno));
    g_helper.place.work(nullptr);
    g_helper.turn.unlock();
    return nullptr;
}

} // namespace

bool helper_is_beginning()
{
    return g_helper.begun.load(std::memory_order_acquire) == kBeginning;
}

void wait_for_helper_to_begin()
{
    while (helper_is_beginning())
        libc::futex_wait(g_helper.begun, kBeginning);
}

void helper_after_fork_in_child()
{
    g_helper.begun.store(kThere, std::memory_order_relaxed);
}

bool helper_is_to_end()
{
    return g_helper.to_end.load(std::memory_order_acquire);
}

void end_helper_soon()
{
    g_helper.to_end.store(true, std::memory_order_release);
}

void join_helper_thread()
{
    const libc::NotCancelled wait;
    ::pthread_join(g_helper.thread, nullptr);
}

std::uint32_t helper_turn_ms()
{
    return std::min(config::params().timer_resolution_msec, kMostTurnMs);
}

std::uint32_t helper_turns_in(std::uint32_t milliseconds)
{
    return std::max((milliseconds + helper_turn_ms() - 1) / helper_turn_ms(), 1U);
}

std::uint32_t helper_turns_per_drain()
{
    const std::uint32_t interval = config::params().progress_interval;
    return helper_turns_in(interval == 0 ? kMostTurnMs : std::min(interval, kMostTurnMs));
}

// A thread's stack has to hold the thread-local variables of the program and of all its libraries as well, however
// large they are. Only glibc knows; it tells by a function that it keeps for runtimes of other languages. Where there
// is none the default size is taken, which a program with large ones has to be able to live with in any case.
void measure_stack()
{
    using Minimum = std::size_t(const pthread_attr_t *);
    auto *const minimum = reinterpret_cast<Minimum *>(dlsym(RTLD_DEFAULT, "__pthread_get_minstack"));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    g_helper.stack_size = minimum != nullptr ? kHelperStack + minimum(&attributes) : 0;
    pthread_attr_destroy(&attributes);
}

int start_quiet_thread(pthread_t &thread, pthread_attr_t &attributes, void *(*work)(void *), void *argument)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    if (g_helper.stack_size != 0)
        pthread_attr_setstacksize(&attributes, g_helper.stack_size);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int result = pthread_create(&thread, &attributes, work, argument);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return -result;
}

int start_helper_thread(void *(*work)(void *))
{
    pthread_attr_t attributes;
    g_helper.place.work = work;
    read_affinity();
    open_cpuset();
    pthread_attr_init(&attributes);
    g_helper.begun.store(kBeginning, std::memory_order_relaxed);
    const int result = start_quiet_thread(g_helper.thread, attributes, take_place, nullptr);
    pthread_attr_destroy(&attributes);
    if (result != 0)
        helper_has_begun(); // as far as anybody waits for it
    if (result != 0 && g_helper.place.tasks >= 0)
        libc::close_private(g_helper.place.tasks);
    return result;
}

} // namespace vma::sock
