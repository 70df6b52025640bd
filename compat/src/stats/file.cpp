// SPDX-License-Identifier: BSD-2-Clause
// The process's file: made where others can write, mapped over the memory that was counted in until then, and taken
// away.
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "compat/src/config/aliases.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/libc/vfork.hpp"
#include "compat/src/stats/region_state.hpp"
#include "config.h"

namespace vma::stats {

// nullptr: no file is wanted. The empty text is a value here, which the table takes for none.
const char *wanted_folder()
{
    const char *const raw = config::raw_variable("VMA_STATS_SHMEM_DIR");
    return raw != nullptr && raw[0] == '\0' ? nullptr : config::params().stats_shmem_dir;
}

namespace {

// No cancellation points: the lock is held. For its user alone: it tells with whom the process talks.
int open_new(const char *path)
{
    constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    return static_cast<int>(libc::real.syscall(SYS_openat, AT_FDCWD, path, kFlags, 0600));
}

// Others can write to the folder. A name that is there is only taken away if it is a plain file of ours; a symbolic
// link is never followed.
int open_fresh(const char *path)
{
    const int fd = open_new(path);
    if (fd >= 0 || errno != EEXIST)
        return fd;
    struct stat there = {};
    if (::lstat(path, &there) != 0 || !S_ISREG(there.st_mode) || there.st_uid != ::geteuid() || there.st_nlink != 1 ||
        ::unlink(path) != 0) {
        errno = EEXIST;
        return -1;
    }
    return open_new(path);
}

// All of it has its place on the disk: a page that finds none when it is written would end the process.
bool reserve(int fd, std::size_t size)
{
    if (exceeds_file_limit(size)) {
        errno = EFBIG;
        return false;
    }
    if (libc::real.syscall(SYS_fallocate, fd, 0, 0L, static_cast<long>(size)) == 0)
        return true;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return false;
    static constexpr char kZeros[4096] = {};
    for (std::size_t at = 0; at < size;) {
        const std::size_t piece = size - at < sizeof kZeros ? size - at : sizeof kZeros;
        const long n = libc::real.syscall(SYS_pwrite64, fd, kZeros, piece, static_cast<long>(at));
        if (n <= 0)
            return false;
        at += static_cast<std::size_t>(n);
    }
    return true;
}

void fill_header(Header &h)
{
    write_sizes(h, g_region.slots);
    h.pid = static_cast<std::uint32_t>(::getpid());
    h.uid = static_cast<std::uint32_t>(::geteuid());
    h.state = State::kRunning;
    h.lift_after = config::params().lift_after;
    h.made_boot_ns = read_clock(CLOCK_BOOTTIME);
    h.made_ns = read_clock(CLOCK_REALTIME);
    struct stat space = {};
    h.pid_space = ::stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
    std::snprintf(h.program, sizeof h.program, "%s", program_invocation_short_name);
    std::snprintf(h.library, sizeof h.library, "%s", PACKAGE_VERSION);
    h.requests = {};
    h.capture = {};
    h.requests.log_level = h.requests.log_details = h.requests.dump_fd = Requests::kKeep;
}

std::size_t used_size(const Header &h)
{
    return sizeof(Header) + h.slots_used * sizeof(Slot);
}

// Maps the file over what there was until now. False: errno.
bool map_over(int fd)
{
    Header &now = header();
    if (!reserve(fd, g_region.size))
        return false;
    void *const fresh = ::mmap(nullptr, g_region.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fresh == MAP_FAILED)
        return false;
    fill_header(now);
    memcpy(fresh, &now, used_size(now));
    if (::mremap(fresh, g_region.size, g_region.size, MREMAP_MAYMOVE | MREMAP_FIXED, &now) == MAP_FAILED) {
        ::munmap(fresh, g_region.size);
        return false;
    }
    __atomic_store_n(&now.magic, kMagic, __ATOMIC_RELEASE);
    return true;
}

void refuse()
{
    VMA_LOG(kWarn,
            "VMA_STATS_SHMEM_DIR: %s: %s (expected a folder where it can be made): vma_stats does not see this process",
            g_nobodys.path, strerror(errno));
}

// The folder with the process's id in place of its first %d. False: too long.
bool name_file(const char *folder)
{
    char(&path)[PATH_MAX] = g_nobodys.path;
    if (!config::expand_process_id(folder, path, sizeof path))
        return false;
    const std::size_t end = strlen(path);
    const std::size_t room = sizeof path - end;
    const char *const slash = end != 0 && path[end - 1] == '/' ? "" : "/";
    return std::snprintf(path + end, room, "%svmastat.%d", slash, ::getpid()) < static_cast<int>(room);
}

void make_file() // lock held
{
    const char *const where = wanted_folder();
    if (where == nullptr)
        return;
    errno = ENAMETOOLONG;
    const int fd = name_file(where) ? open_fresh(g_nobodys.path) : -1;
    if (fd < 0) {
        refuse();
        return;
    }
    struct stat made = {};
    ::fstat(fd, &made);
    if (map_over(fd)) {
        g_region.published = true;
        g_region.owner = ::getpid();
        g_region.device = made.st_dev;
        g_region.inode = made.st_ino;
        g_region.pending.asked.store(&header().requests.count, std::memory_order_relaxed);
    } else {
        refuse();
        ::unlink(g_nobodys.path);
    }
    libc::real.syscall(SYS_close, fd);
}

} // namespace

void make_due_file()
{
    if (libc::in_vfork_child() || !g_region.lock.try_lock())
        return;
    const int saved = errno;
    if (g_region.pending.file_due.exchange(false, std::memory_order_acq_rel))
        make_file();
    errno = saved;
    g_region.lock.unlock();
}

[[VMA_AT_STARTUP]] void remove_file()
{
    if (!g_region.published || g_region.owner != ::getpid())
        return;
    const int saved = errno;
    struct stat there = {};
    if (::lstat(g_nobodys.path, &there) == 0 && there.st_dev == g_region.device && there.st_ino == g_region.inode)
        ::unlink(g_nobodys.path);
    errno = saved;
}

void give_up_file()
{
    const LockGuard guard(g_region.lock);
    g_region.pending.file_due.store(false, std::memory_order_relaxed);
    g_region.pending.makes_no_calls.store(true, std::memory_order_relaxed);
    end_capture();
    remove_file();
    g_region.published = false;
}

void replaced(bool really)
{
    if (g_region.published && g_region.owner == ::getpid())
        header().state = really ? State::kReplaced : State::kRunning;
}

} // namespace vma::stats
