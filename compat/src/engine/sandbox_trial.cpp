// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/sandbox_trial.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/futex.h>
#include <linux/netlink.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <iterator>

#include "compat/src/engine/tables.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::sock {

namespace {

constexpr int kAny = -1; // without it acceleration does with less: only a filter that ends the process matters

struct Trial {
    char name[24];
    long number;
    int error; // what the kernel answers to these arguments; 0: it does it
    long arguments[6];
};

constexpr long g_zeros[2] = {};
constexpr char g_nothing[] = "";
constexpr char g_name[] = "x";

// In place of addresses, which the table can't have.
enum : long { kRoom = 0x5ca1ab1e0000, kZeros, kName, kNothing };

long value_of(long argument)
{
    const void *address = nullptr;
    switch (argument) {
    case kRoom:
        address = g_engine_tables.sandbox.room;
        break;
    case kZeros:
        address = g_zeros;
        break;
    case kName:
        address = g_name;
        break;
    case kNothing:
        address = g_nothing;
        break;
    default:
        return argument;
    }
    return reinterpret_cast<long>(address);
}

constexpr long kThread = CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM; // not CLONE_VM: refused
constexpr long kRead = PROT_READ;
constexpr long kWrite = PROT_READ | PROT_WRITE;

// Arguments that have no effect, but are what filters look at: families of sockets, protections, flags of clone(). What
// the C library has done before main() under the same filters is not here.
#define VMA_TRIAL(call, error, ...)                                                                                    \
    {                                                                                                                  \
#call, SYS_##call, error,                                                                                      \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define VMA_TRIAL_SOCKET(family, ...)                                                                                  \
    {                                                                                                                  \
        "socket(" #family ")", SYS_socket, 0,                                                                          \
        {                                                                                                              \
            family, __VA_ARGS__                                                                                        \
        }                                                                                                              \
    }

constexpr Trial kTrials[] = {
    VMA_TRIAL(wait4, ECHILD, -1, 0, WNOHANG | __WCLONE, 0), // if it is refused nobody waits for the child
    VMA_TRIAL(clone, EINVAL, kThread, 0, 0, 0, 0),
    VMA_TRIAL(clone3, kAny, 0, 0),
    VMA_TRIAL(futex, 0, kRoom, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 0),
    VMA_TRIAL(rt_sigprocmask, 0, SIG_BLOCK, 0, 0, 8),
    VMA_TRIAL(rt_sigaction, 0, SIGUSR1, 0, 0, 8),
    VMA_TRIAL(sigaltstack, 0, 0, 0),
    VMA_TRIAL(prlimit64, 0, 0, RLIMIT_NOFILE, 0, 0),
    VMA_TRIAL(prlimit64, kAny, 0, RLIMIT_NOFILE, 1, 0), // to set it: a descriptor gets above a small limit
    VMA_TRIAL(getpid, 0),
    VMA_TRIAL(gettid, 0),
    VMA_TRIAL(geteuid, 0),
    VMA_TRIAL(getrandom, 0, kRoom, 8, 0),
    VMA_TRIAL(sched_yield, 0),
    VMA_TRIAL(sched_getaffinity, kAny, 0, 0, 0),
    VMA_TRIAL(getrusage, kAny, RUSAGE_SELF, kRoom),
    VMA_TRIAL(clock_gettime, kAny, CLOCK_MONOTONIC, kRoom),
    VMA_TRIAL(nanosleep, kAny, 0, 0),
    VMA_TRIAL(clock_nanosleep, kAny, CLOCK_MONOTONIC, 0, 0, 0),
    VMA_TRIAL(membarrier, kAny, 0, 0, 0),
    VMA_TRIAL(kill, kAny, 0, 0),
    VMA_TRIAL(tgkill, kAny, 0, 0, 0), // a handler that is put off (libc/handlers.cpp)
    VMA_TRIAL(rt_tgsigqueueinfo, kAny, 0, 0, 0, 0),
    VMA_TRIAL(kcmp, kAny, 0, 0, 0, 0, 0),
    VMA_TRIAL(pidfd_open, kAny, -1, 0),
    VMA_TRIAL(process_vm_readv, kAny, 0, 0, 0, 0, 0, 0),
    VMA_TRIAL(process_vm_writev, kAny, 0, 0, 0, 0, 0, 0),
    // memory
    VMA_TRIAL(mmap, EINVAL, 0, 0, kWrite, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
    VMA_TRIAL(mmap, EBADF, 0, 4096, kWrite, MAP_SHARED, -1, 0),
    VMA_TRIAL(mmap, EBADF, 0, 4096, kRead | PROT_EXEC, MAP_PRIVATE, -1, 0),
    VMA_TRIAL(mprotect, EINVAL, 1, 4096, kWrite),
    VMA_TRIAL(munmap, EINVAL, 1, 4096),
    VMA_TRIAL(mremap, EINVAL, 1, 4096, 4096, 0, 0),
    VMA_TRIAL(madvise, EINVAL, 1, 4096, MADV_DONTFORK),
    VMA_TRIAL(mbind, kAny, 0, 0, 0, 0, 0, 0),
    VMA_TRIAL(memfd_create, 0, kName, MFD_CLOEXEC | MFD_ALLOW_SEALING),
    VMA_TRIAL(shmget, EINVAL, IPC_PRIVATE, 0, IPC_CREAT | IPC_EXCL | 0600),
    VMA_TRIAL(shmat, EINVAL, -1, 0, 0),
    VMA_TRIAL(shmctl, EINVAL, -1, IPC_STAT, 0),
    VMA_TRIAL(shmdt, EINVAL, 1),
    // files
    VMA_TRIAL(openat, EBADF, -1, kName, O_RDONLY | O_CLOEXEC),
    VMA_TRIAL(read, EBADF, -1, 0, 0),
    VMA_TRIAL(write, EBADF, -1, 0, 0),
    VMA_TRIAL(pread64, EBADF, -1, 0, 0, 0),
    VMA_TRIAL(pwrite64, EBADF, -1, 0, 0, 0),
    VMA_TRIAL(close, EBADF, -1),
    VMA_TRIAL(fcntl, EBADF, -1, F_DUPFD_CLOEXEC, 0),
    VMA_TRIAL(ioctl, EBADF, -1, FIONREAD, 0),
    VMA_TRIAL(fstat, EBADF, -1, kRoom),
    VMA_TRIAL(fstatfs, kAny, -1, kRoom),
    VMA_TRIAL(ftruncate, EBADF, -1, 0),
    VMA_TRIAL(fallocate, EBADF, -1, 0, 0, 4096),
    VMA_TRIAL(flock, EBADF, -1, LOCK_UN),
    VMA_TRIAL(getdents64, EBADF, -1, 0, 0),
    VMA_TRIAL(lseek, EBADF, -1, 0, 0),
    VMA_TRIAL(readlinkat, EBADF, -1, kName, kRoom, 1),
    VMA_TRIAL(unlinkat, EBADF, -1, kName, 0),
    VMA_TRIAL(mkdirat, EBADF, -1, kName, 0700),
    VMA_TRIAL(linkat, EBADF, -1, kName, -1, kName, 0),
    VMA_TRIAL(faccessat, EBADF, -1, kName, 0),
#ifdef SYS_newfstatat
    VMA_TRIAL(newfstatat, EBADF, -1, kName, kRoom, 0),
#endif
#ifdef SYS_readlink // the older half, which libc calls where there is one
    VMA_TRIAL(readlink, ENOENT, kNothing, kRoom, 1),
    VMA_TRIAL(unlink, ENOENT, kNothing),
    VMA_TRIAL(mkdir, ENOENT, kNothing, 0700),
    VMA_TRIAL(symlink, ENOENT, kName, kNothing),
    VMA_TRIAL(rename, ENOENT, kNothing, kNothing),
    VMA_TRIAL(access, ENOENT, kNothing, 0),
    VMA_TRIAL(poll, 0, 0, 0, 0),
    VMA_TRIAL(epoll_wait, EBADF, -1, kRoom, 1, 0),
#else
    VMA_TRIAL(symlinkat, EBADF, kName, -1, kName),
    VMA_TRIAL(renameat, EBADF, -1, kName, -1, kName),
#endif
    // sockets, and waiting for them
    VMA_TRIAL_SOCKET(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
    VMA_TRIAL_SOCKET(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0),
    VMA_TRIAL_SOCKET(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE),
    VMA_TRIAL_SOCKET(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG),
    VMA_TRIAL(bind, EBADF, -1, 0, 0),
    VMA_TRIAL(listen, EBADF, -1, 0),
    VMA_TRIAL(accept4, EBADF, -1, 0, 0, 0),
    VMA_TRIAL(connect, EBADF, -1, 0, 0),
    VMA_TRIAL(shutdown, EBADF, -1, 0),
    VMA_TRIAL(getsockname, EBADF, -1, 0, 0),
    VMA_TRIAL(getpeername, EBADF, -1, 0, 0),
    VMA_TRIAL(getsockopt, EBADF, -1, 0, 0, 0, 0),
    VMA_TRIAL(setsockopt, EBADF, -1, 0, 0, 0, 0),
    VMA_TRIAL(sendto, EBADF, -1, 0, 0, 0, 0, 0),
    VMA_TRIAL(recvfrom, EBADF, -1, 0, 0, 0, 0, 0),
    VMA_TRIAL(sendmsg, EBADF, -1, 0, 0),
    VMA_TRIAL(recvmsg, EBADF, -1, 0, 0),
    VMA_TRIAL(ppoll, 0, 0, 0, kZeros, 0, 0),
    VMA_TRIAL(epoll_create1, 0, EPOLL_CLOEXEC),
    VMA_TRIAL(epoll_ctl, EBADF, -1, EPOLL_CTL_DEL, -1, 0),
    VMA_TRIAL(epoll_pwait, EBADF, -1, kRoom, 1, 0, 0, 8),
    VMA_TRIAL(epoll_pwait2, kAny, -1, kRoom, 1, 0, 0, 8),
    VMA_TRIAL(eventfd2, 0, 0, EFD_CLOEXEC | EFD_NONBLOCK),
    VMA_TRIAL(timerfd_create, 0, CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
    VMA_TRIAL(timerfd_settime, kAny, -1, 0, 0, 0),
};

bool passes(const Trial &t)
{
    long a[6];
    std::transform(std::begin(t.arguments), std::end(t.arguments), a, value_of);
    errno = 0;
    const long result = libc::real.syscall(t.number, a[0], a[1], a[2], a[3], a[4], a[5]);
    return t.error == kAny || (result < 0 ? errno : 0) == t.error;
}

// Whatever it opens goes with it: the table of descriptors is a copy.
int try_all(void *)
{
    for (const Trial &t : kTrials) {
        if (!passes(t))
            break;
        g_engine_tables.sandbox.passed.fetch_add(1, std::memory_order_relaxed);
    }
    for (;;)
        libc::real.syscall(SYS_exit, 0);
}

// A child that is ended by a filter may write a core file, and before 5.16 the kernel ended all that share its memory
// for that.
bool is_kernel_new_enough()
{
    utsname name = {};
    int major = 0;
    int minor = 0;
    return ::uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 16));
}

const char *try_in_child()
{
    if (!is_kernel_new_enough())
        return "what can't be tried with a kernel before 5.16";
    g_engine_tables.sandbox.passed.store(0, std::memory_order_relaxed);
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before); // no handler of the program's runs in the child
    const int child = libc::real.clone(&try_all, g_engine_tables.sandbox.stack + sizeof g_engine_tables.sandbox.stack,
                                       CLONE_VM | CLONE_VFORK, nullptr);
    const std::size_t passed = g_engine_tables.sandbox.passed.load(std::memory_order_relaxed);
    if (child > 0 && passed != 0)
        while (libc::real.syscall(SYS_wait4, child, nullptr, __WCLONE, nullptr) < 0 && errno == EINTR) {
        }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (child < 0)
        return "a child process to try them in";
    return passed < std::size(kTrials) ? kTrials[passed].name : nullptr;
}

} // namespace

const char *refused_call()
{
    if (!g_engine_tables.sandbox.tried) {
        const int saved = errno;
        g_engine_tables.sandbox.refused = try_in_child();
        errno = saved;
        g_engine_tables.sandbox.tried = true;
    }
    return g_engine_tables.sandbox.refused;
}

} // namespace vma::sock
